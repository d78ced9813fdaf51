"""The protocols of evaluation that our runs have followed, each with the weights it selected and with the last ones."""

from collections.abc import Sequence
from dataclasses import replace

from gssc.report.runs import is_number
from gssc.report.tables import Comparison, Row, difference_text, digits_for, spread_text
from gssc.report.variants import Spread, Variant

# Where the weights come from, and the names of their test and validation scores.
WEIGHTS = (("selected", "test", "val"), ("last", "last_test", "last_val"))


def with_protocols(table: Comparison, variants: Sequence[Variant]) -> Comparison:
    """The table of some variants, with a row for each protocol and kind of weights where they have followed several."""
    return replace(table, protocols=tuple(row for variant in variants for row in protocol_rows(variant)))


def protocol_rows(variant: Variant) -> list[Row]:
    """Rows of one variant; what is no number does not count."""
    published = variant.published_gssc()
    factor = published.factor if published else 1.0
    rows = []
    for name, scores in variant.protocols().items():
        for weights, test_key, validation_key in WEIGHTS:
            test, validation = (
                Spread.of(float(one[key]) for one in scores if is_number(one.get(key)))
                for key in (test_key, validation_key)
            )
            if test is None:
                continue
            value = test.mean * factor
            difference, verdict = difference_text(value, digits_for(value, published), published)
            rows.append(
                Row(
                    variant.label,
                    ours=True,
                    seeds=test.n,
                    value=value,
                    std=test.std * factor if test.n > 1 else None,
                    text=spread_text(test, published),
                    difference=difference,
                    verdict=verdict,
                    validation=spread_text(validation, published),
                    source=weights,
                    protocol=name,
                )
            )
    return rows
