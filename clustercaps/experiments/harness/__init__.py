"""How experiments are measured, stored and shown: cells, results, tables, figures, findings."""
