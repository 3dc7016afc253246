"""The test of each module of the package is found by its name."""

import re

from tests.house.sources import PACKAGE, TESTS, modules, source


def test_the_test_of_each_module_is_found_by_its_name() -> None:
    tests = [path for path in modules(TESTS) if path.stem.startswith("test_")]
    names, text = {path.stem for path in tests}, " ".join(map(source, tests)).replace("/", ".")
    lost = [
        module.as_posix()
        for module in (path.relative_to(PACKAGE).with_suffix("") for path in modules(PACKAGE))
        if module.name != "__init__" and f"test_{module.name}" not in names
        if not re.search(rf"{re.escape('.'.join(module.parts))}\b", text)
    ]
    assert lost == [], "a test file that tests one of these names it in its docstring"
