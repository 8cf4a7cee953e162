"""Benchmarks: time, memory, fraction of the machine's speed, and scaling.

One module per benchmark of `clustercaps bench` (`models`, `layers`, `scaling`, `epoch`, `peers`),
each with `run(options)`. They use `cases` (what is timed), `check` (correctness), `measure`,
`peak_memory` and, for GPUs, `accelerator` (how it is measured), `work` (operation counts), `fits`
(how time grows), `comparison_report`, `csv_output` and `figures` (what is printed, stored and
drawn).
"""
