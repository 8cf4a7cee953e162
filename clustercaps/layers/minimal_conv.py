"""A convolution that needs fewer products on the CPU."""

from torch import Tensor, nn

from clustercaps.kernels.conv import convolve


class MinimalConv2d(nn.Conv2d):
    """An `nn.Conv2d` that uses minimal filtering where that is faster than PyTorch's convolution.

    That is on the CPU, in float32, for the windows and sizes that `clustercaps.kernels.conv` lists;
    everything else is computed by PyTorch. Arguments, parameters and results are those of
    `nn.Conv2d`, the latter up to rounding.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # The modules of PyTorch call this with the parameters, after all hooks.
        (stride, across), padding = self.stride, self.padding
        simple = stride == across and self.dilation == (1, 1) and self.padding_mode == "zeros"
        if simple and not isinstance(padding, str) and padding[0] == padding[1]:
            return convolve(input, weight, bias, stride, padding[0], self.groups)
        return super()._conv_forward(input, weight, bias)
