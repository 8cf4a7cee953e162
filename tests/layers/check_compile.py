"""torch.compile(fullgraph=True) and torch.export on a layer and a network; run by test_cluster."""

import torch

import clustercaps as cc
from clustercaps.routing import create_routing

torch.manual_seed(0)
layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=3, stride=2, in_size=7)
x = torch.randn(2, 2, 3, 7, 7)
# aot_eager traces forward and backward whole, without waiting for a C++ compiler.
compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(compiled(x), layer(x))
compiled(x).sum().backward()
capsules, trace = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, trace=True)
torch.testing.assert_close(trace.weights, layer(x, trace=True)[1].weights)

for name in ("m1", "s1", "class_capsules", "affine_capsules"):
    model = cc.create_model(name, in_chans=1, img_size=28, dim=3).eval()
    images = torch.rand(3, 1, 28, 28)
    fast = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fast(images), model(images))
    batch = {"images": {0: torch.export.Dim("batch")}}
    exported = torch.export.export(model, (images,), dynamic_shapes=batch).module()
    torch.testing.assert_close(exported(images), model(images))
    torch.testing.assert_close(exported(images[:2]), model(images[:2]))

# A layer without in_size, exported with maps of any size.
layer = cc.ClusterCapsules2d(2, 3, 2, 4, votes=3)
sides = {"x": {3: torch.export.Dim("height", min=2), 4: torch.export.Dim("width", min=2)}}
exported = torch.export.export(layer, (x,), dynamic_shapes=sides).module()
torch.testing.assert_close(exported(x[..., :5, :6]), layer(x[..., :5, :6]))

# Every routing, on its own.
for name in cc.list_routings():
    # They share one forward: its graphs of other routings must not count against this one.
    torch.compiler.reset()
    routing = create_routing(name, 6, 3, 4).eval()
    inputs = cc.testing.draw_input(routing)
    fast = torch.compile(routing, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(fast(**inputs), routing(**inputs))
