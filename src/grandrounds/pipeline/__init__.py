"""Saved models as one extractor: from raw text to mentions, assertions, links and relations."""
