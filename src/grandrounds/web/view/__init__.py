"""`grandrounds view`: a run, a federation or a site's own log as a page that follows it."""
