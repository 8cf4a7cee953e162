"""What is stored about the machine."""

import pytest

from clustercaps.utils.machine import processor_name

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
flags\t\t: fpu avx512f

processor\t: 1
model name\t: another
"""
OLD_ARM = "processor\t: 0\nmodel name\t: ARMv7 Processor rev 4 (v7l)\n"
NEW_ARM = "processor\t: 0\nCPU implementer\t: 0x41\n"


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (X86, "AMD EPYC (family 26, model 2)"),
        (OLD_ARM, "ARMv7 Processor rev 4 (v7l)"),
        (NEW_ARM, ""),
        ("", ""),
    ],
)
def test_processors_with_the_same_name_are_told_apart(cpuinfo, name):
    assert processor_name(cpuinfo) == name
