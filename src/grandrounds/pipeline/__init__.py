"""Saved models as one extractor: text -> mentions -> assertions -> links -> relations."""
