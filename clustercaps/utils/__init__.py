"""Shared helpers: errors, files, sizes, tables, plots. Imports no other part of the package."""
