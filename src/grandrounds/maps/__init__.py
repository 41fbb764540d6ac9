"""When each system's idea works: its advantage over the best rival, over two properties of synthetic hospitals."""
