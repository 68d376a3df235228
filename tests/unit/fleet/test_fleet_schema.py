"""What editors offer for a fleet file is what its reader reads."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from penstock.errors import UsageError
from penstock.fleet.fleet_file import FLEET_FILE, read_fleet

REPOSITORY = Path(__file__).resolve().parents[3]
FILES = [REPOSITORY / "tests/golden/fleet_two_parts.yaml", *sorted((REPOSITORY / "examples/fleets").glob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_fleet_that_is_shipped_follows_the_schema_and_is_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    jsonschema.validate(yaml.safe_load(text), FLEET_FILE.schema())
    read_fleet(text, path.name)


@pytest.mark.parametrize("place", ["", "pools", "nodes", "routes"])
def test_a_key_the_schema_lacks_is_one_the_reader_refuses(place: str) -> None:
    document = yaml.safe_load(FILES[0].read_text(encoding="utf-8"))
    (document[place][0] if place else document)["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, FLEET_FILE.schema())
    with pytest.raises(UsageError, match=r"fleet\.yaml:\d+: `colour` is not a key"):
        read_fleet(yaml.safe_dump(document, sort_keys=False), "fleet.yaml")


@pytest.mark.parametrize("place", ["", "pools", "nodes", "routes"])
def test_a_key_the_schema_requires_is_one_the_reader_misses(place: str) -> None:
    def table(document: dict[str, list[dict[str, object]]]) -> dict[str, object]:
        return document[place][0] if place else document  # type: ignore[return-value]

    text = FILES[0].read_text(encoding="utf-8")
    for key in table(yaml.safe_load(text)):
        document = yaml.safe_load(text)
        del table(document)[key]
        try:
            jsonschema.validate(document, FLEET_FILE.schema())
        except jsonschema.ValidationError:
            with pytest.raises(UsageError):
                read_fleet(yaml.safe_dump(document, sort_keys=False), "fleet.yaml")
        else:
            read_fleet(yaml.safe_dump(document, sort_keys=False), "fleet.yaml")
