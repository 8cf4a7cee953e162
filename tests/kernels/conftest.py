import pytest

from clustercaps.kernels import build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        build.find_compiler()
    except build.BuildError as error:
        for item in items:
            if "kernels" in item.path.parts and "no_compiler" not in item.name:
                item.add_marker(pytest.mark.skip(reason=str(error)))
