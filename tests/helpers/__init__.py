"""What several tests use: references, golden values, small files, numbers of the docs."""
