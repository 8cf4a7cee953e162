"""`rendered-norb`: rendered objects in the file format and views of smallNORB.

In reading order: `solids` (primitives), `creatures`, `vehicles` and `toys` (objects), `camera`
(views), `raycast` (visible surfaces), `shadows` and `shading` (brightness), `turntable` (all images
of one position), `crew` and `worker` (rendering on all cores), `norb_set` (the whole dataset).
"""

from clustercaps.data.rendering.norb_set import FULL, SMALL, Plan, Rendered, render_split

__all__ = ["FULL", "SMALL", "Plan", "Rendered", "render_split"]
