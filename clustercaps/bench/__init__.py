"""Benchmarks: time, memory, fraction of the machine's speed, and scaling.

One module per benchmark of `clustercaps bench` (`models`, `layers`, `scaling`, `epoch`, `peers`),
each with `run(options)`. They use `cases` (what is timed), `check` (correctness), `measure` and
`peak_memory` (how it is measured), `work` (operation counts), `comparison_report` and
`csv_output` (what is printed and stored).
"""
