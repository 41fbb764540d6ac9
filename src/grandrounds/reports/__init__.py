"""A run as a page to read, its plots and tables, and extracted documents with their mentions highlighted."""
