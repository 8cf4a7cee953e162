import pytest

from clustercaps.kernels import build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        build.find_compiler()
    except build.BuildError as error:
        for item in items:
            needs_none = "no_compiler" in item.name or "triton" in item.path.name
            if "kernels" in item.path.parts and not needs_none:
                item.add_marker(pytest.mark.skip(reason=str(error)))
