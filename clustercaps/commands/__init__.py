"""The words of the `clustercaps` command, one module each."""
