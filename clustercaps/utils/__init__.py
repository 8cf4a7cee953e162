"""What everything else stands on: errors, files, sizes, tables, plots. Imports nothing of ours."""
