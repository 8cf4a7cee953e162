"""`rendered-norb`: rendered toys in the files and views of smallNORB, for novel viewpoints.

In the order of reading: `solids` (what can be built), `creatures`, `vehicles` and `toys` (what is
built), `camera` (from where it is seen), `raycast` (what is seen), `shadows` and `shading` (how
bright it is), `turntable` (all pictures of one position), `crew` and `worker` (on all cores),
`norb_set` (the whole set).
"""

from clustercaps.data.rendering.norb_set import FULL, SMALL, Plan, Rendered, render_split

__all__ = ["FULL", "SMALL", "Plan", "Rendered", "render_split"]
