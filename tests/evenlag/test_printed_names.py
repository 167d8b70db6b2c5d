"""No place prints a name from Kafka without making it safe: rules over the text of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.names.places import find_places

ROOT: Final = Path(__file__).resolve().parents[2]
MARKDOWN: Final = "evenlag/publishing/approval_page.py"

# Expressions that the rules do not see through, and why no name from Kafka reaches a reader by them.
ALLOWED: Final[dict[str, dict[str, frozenset[str]]]] = {
    "it makes what the others use": {
        "evenlag/logging_setup.py": frozenset(
            {"logging.getLogger(name)", "logging.getLogger()", "logging.StreamHandler"}
        ),
        "evenlag/consumer/events.py": frozenset({"logging.getLogger(name)"}),
        "evenlag/cli/export.py": frozenset({"csv.writer"}),
    },
    "it is hashed, and nobody sees it": {
        "evenlag/planning/assignments_hash.py": frozenset({"csv.write_csv"}),
    },
    "names in metrics are made safe where the text is rendered": {
        "evenlag/cli/serve.py": frozenset({"text.decode()"}),
    },
    "whoever runs Airflow or the command chose it": {
        "evenlag/airflow/tasks.py": frozenset({"os.environ.get(NOTIFIER_VARIABLE, '')"}),
        "evenlag/airflow/spark_task.py": frozenset(
            {"spark_python()", "self.spark_conn_id", "self.spark_conn_id.upper()"}
        ),
        "evenlag/cli/policy.py": frozenset({"render_schema()"}),
    },
    "HTML by contract: the callers' arguments are checked; a style, a class": {
        "evenlag/html/markup.py": frozenset(
            {
                "_STYLE.read_text(encoding='utf-8')",
                "body",
                "zip(columns, classes, strict=True)",
                "list(zip(row, classes, strict=True))",
                "pairs[0][1]",
                "plot",
                "kind",
            }
        ),
        "evenlag/html/charts.py": frozenset({"sizes.items()"}),
        "evenlag/quality/data_docs.py": frozenset(
            {"re.sub('`([^`]+)`', '<code>\\\\1</code>', text(words))", "parts"}
        ),
        "evenlag/overview/page.py": frozenset(
            {
                "(_FOLDER / name).read_text(encoding='utf-8')",
            }
        ),
    },
    "numbers, words of ours, and the message of an error": {
        "evenlag/overview/live.py": frozenset({"title.endswith('#')", "_COLUMNS.items()"}),
        MARKDOWN: frozenset({"_EIGHTHS[eighths % 8].strip()", "what"}),
    },
    "the sandbox prints the names that it chose itself, in processes of its own": {
        "sandbox/demo/console.py": frozenset({"Console"}),
        "sandbox/demo/page.py": frozenset({"result.sequence"}),
        "sandbox/demo/workload.py": frozenset({"error"}),
        "sandbox/jars.py": frozenset({"parser.parse_args().log_store", "error", "log_store.name"}),
        "sandbox/kafka/jvm_jars.py": frozenset({"jar"}),
        "sandbox/kafka/broker.py": frozenset({"logging.getLogger(name)"}),
        **dict.fromkeys(
            (f"sandbox/workload/{name}.py" for name in ("consumer", "producer")),
            frozenset({"logging.basicConfig"}),
        ),
    },
}


def _modules() -> list[Path]:
    folders = ("assignor_core", "evenlag", "spark_jobs", "dags", "sandbox")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _allowed(path: str) -> set[str]:
    return {code for places in ALLOWED.values() for code in places.get(path, ())}


def test_every_text_that_is_printed_is_made_safe() -> None:
    wrong, used = [], set()
    for module in _modules():
        path = module.relative_to(ROOT).as_posix()
        allowed = _allowed(path)
        for place in find_places(module.read_text(encoding="utf-8"), is_markdown=path == MARKDOWN):
            if place.code in allowed:
                used.add((path, place.code))
            else:
                wrong.append(f"{path}:{place.line}: {place.rule}: {place.code}")
    assert wrong == [], "print them through evenlag.safe_text, or a logger of named_logger"
    listed = {(path, code) for places in ALLOWED.values() for path, codes in places.items() for code in codes}
    assert listed == used, "what is not found any more need not be allowed"


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        ("stream", "print(group)"),
        ("stream", "import sys\nsys.stderr.write(f'no group {group}')"),
        ("stream", "typer.echo(f'{len(rows)} rows of {row[\"group_id\"]}')"),
        ("stream", "class A:\n    def f(self, error):\n        self.log.warning('%s', error)"),
        ("stream", "def f(row):\n    shown = row['topic']\n    print(shown)"),
        ("exception", "raise AirflowFailException(str(error))"),
        ("logger", "_LOG = logging.getLogger(__name__)"),
        ("logger", "logging.warning('group %s', group)"),
        ("logger", "logging.basicConfig(level=20)"),
        ("terminal", "from rich.console import Console\nConsole().print(group)"),
        ("terminal", "Text.from_markup(f'[b]{group}')"),
        ("csv", "csv.writer(file).writerow([group])"),
        ("csv", "frame.to_csv(path)"),
        ("html", "def f(group):\n    return f'<b>{group}</b>'"),
        ("html", "def f(row):\n    name = row.group\n    return f'<td>{name}</td>'"),
        ("html", "def g(row):\n    return row.name\ndef f(row):\n    return f'<td>{g(row)}</td>'"),
        ("html", "def f(group):\n    return Html(group)"),
        ("html", "def f(group):\n    return details('Lag', group)"),
        ("html", "def f(rows):\n    return f'<ul>{\"\".join(row.name for row in rows)}</ul>'"),
        ("markdown", "def f(row):\n    return f'| {row[\"topic\"]} |'"),
    ],
)
def test_a_name_that_is_printed_as_it_is_would_be_found(rule: str, source: str) -> None:
    found = find_places(source, is_markdown=rule == "markdown")
    assert [place.rule for place in found] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        "print(printable(group))",
        "print(f'{count:,} groups')",
        "sys.stdout.write(json.dumps(row) + '\\n')",
        "_LOG = named_logger(__name__)\n_LOG.info('group %s', group)",
        "def f(group):\n    return f'<b>{page_text(group)}</b>'",
        "def f(row):\n    name = text(row.group) if row else ''\n    return Html(f'<td>{name}</td>')",
        "def g(row):\n    return page_text(row.name)\ndef f(row):\n    return f'<td>{g(row)}</td>'",
        "def f(rows):\n    return f'<ul>{\"\".join(text(row.name) for row in rows)}</ul>'",
        "raise AirflowSkipException(printable_lines(str(error)))",
    ],
)
def test_a_name_that_is_made_safe_is_no_place(source: str) -> None:
    assert find_places(source) == []
    assert find_places("def f(row):\n    return f'| {markdown_text(row.t)} |'", is_markdown=True) == []
