"""Benchmarks: time, memory, fraction of the machine's speed, and scaling.

One module per benchmark of `clustercaps bench` (`models`, `layers`, `bounds`, `precision`,
`scaling`, `epoch`, `peers`, `spread`), each with `run(options)`. They use `cases` (what is timed),
`check` (correctness), `measure`, `peak_memory` and, for GPUs, `accelerator` (how it is measured),
`work` and `limits` (operation counts, and their time at full speed), `fits` (how time grows),
`comparison_report`, `csv_output` and `figures` (what is printed, stored and drawn).
"""
