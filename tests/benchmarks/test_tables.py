import pytest
from benchmark_rows import write_results

from benchmarks.tables import TABLES, update_tables

MARKS = "".join(f"before\n<!-- begin bench-{name} -->\nold\n<!-- end bench-{name} -->\n" for name in TABLES)


def test_what_stands_between_marks_is_replaced(tmp_path):
    results, document = write_results(tmp_path / "r.csv"), tmp_path / "doc.md"
    document.write_text(MARKS)
    update_tables(results, document)
    text = document.read_text()
    assert "old" not in text
    assert text.count("before\n") == len(TABLES)
    assert "| 500 nodes | explicit z |  | 50 |  |  |" in text
    assert (
        "| 60,000 nodes, 3.6M edges | authors' GSSC, training |  | 233 |  | 36,359 | NVIDIA H200 | published |" in text
    )
    assert "- growth, degree 10, 100,000 to 10,000,000 nodes, gssc, training: slope of log time" in text
    update_tables(results, document)
    assert document.read_text() == text


def test_a_kind_without_rows(tmp_path):
    results, document = tmp_path / "r.csv", tmp_path / "doc.md"
    write_results(results).write_text(results.read_text().splitlines()[0] + "\n")
    document.write_text("<!-- begin bench-conv -->\n<!-- end bench-conv -->\n")
    update_tables(results, document)
    assert "Not measured yet." in document.read_text()


def test_errors_leave_the_document(tmp_path):
    results, document = write_results(tmp_path / "r.csv"), tmp_path / "doc.md"
    with pytest.raises(ValueError, match="--table: expected a Markdown file that can be read"):
        update_tables(results, document)
    document.write_text("no marks")
    with pytest.raises(ValueError, match="--table: expected a file with marks"):
        update_tables(results, document)
    document.write_text("<!-- begin bench-konv -->\n<!-- end bench-konv -->\n")
    with pytest.raises(ValueError, match=r"mark in .*doc.md: expected one of 'conv'"):
        update_tables(results, document)
    assert document.read_text() == "<!-- begin bench-konv -->\n<!-- end bench-konv -->\n"
