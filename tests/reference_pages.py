"""The generated pages of `docs`: ``python -m tests.reference_pages``; ``--check`` only compares them."""

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from assignor_core.assignors import COOPERATIVE, Assignor, assignor_classes
from evenlag import errors
from evenlag.cli.app import app
from evenlag.errors import JobError
from evenlag.lake.tables import TABLES, Column, Table
from evenlag.policy.gates import GATES, Fixed, Gate, GateSetting, PlanLimit
from evenlag.policy.settings import RETENTION_DAYS, Policy
from tests.support.gate_examples import EXAMPLES
from tests.support.pages.markdown import ROOT

_COMMAND: Final = "python -m tests.reference_pages"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table without a newline at its end."""
    heads = list(header)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def page(title: str, source: str, parts: Iterable[str]) -> str:
    """Join the parts of a page; it ends with a newline."""
    origin = f"*Generated from {source} by `{_COMMAND}`.*"
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts), origin]) + "\n"


_BEGIN: Final = f"<!-- assignors: written by {_COMMAND} -->"
_END: Final = "<!-- end of assignors -->"


def render_assignors() -> str:
    """Return the page of assignors with its table replaced."""
    return replace_table((ROOT / "docs" / "assignors.md").read_text(encoding="utf-8"))


def replace_table(text: str) -> str:
    """Return a page with the table between the two comments replaced; `ValueError` without the comments."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no table between {_BEGIN} and {_END}")
    rows = table(("name", "result", "parameters", "uses", "protocol"), map(_assignor_row, assignor_classes()))
    return f"{before}{_BEGIN}\n\n{rows}\n\n{_END}{after}"


def _assignor_row(assignor: type[Assignor]) -> tuple[str, ...]:
    summary = (assignor.__doc__ or "").strip().splitlines()[0].removesuffix(".")
    names = ", ".join(f"`{parameter.name}`" for parameter in assignor.parameters)
    uses = "load" if assignor.uses_load else "lag" if assignor.uses_lag else ""
    protocol = "cooperative" if COOPERATIVE in assignor.protocols else "eager"
    return f"`{assignor.name}`", summary, names, uses, protocol


_MEANINGS: Final = {
    1: "failure: read the message. `evenlag doctor`: a check failed; `evenlag plans approve`: approved, but "
    "no longer publishable",
    2: "usage or policy error, not retried: options, files, the policy, a missing secret; a plan that does "
    "not wait, or no [approver](approvals.md#approvers); a Spark Connect server with other code or without "
    "Delta. Correct it",
    3: "unavailable or refused: Kafka, Airflow, the lake or a Spark Connect server does not answer, or "
    "refuses credentials or an ACL. Retry, or check the system that the message names",
    4: "not found: no snapshot, or no such cluster, group, topic, partition, plan or hint. Run a cycle "
    "first, or correct the name or the period",
}
_ERRORS: Final = """\
Look up an exit code or an error. An error is one line on standard error that begins with `error:` and says
what is wrong and what to do; for a policy, one line per error. The [runbook](../runbook.md) begins with
symptoms."""
_OTHER_CODES: Final = """\
0 is success. 130: stopped by Ctrl-C, the normal end of `evenlag run --watch`; 143: by SIGTERM. 128 plus a
signal: the Spark job was killed, e.g. 137 when memory ran out; the message has the end of Spark's output.

Jobs (`python -m spark_jobs.cycle`, …) end with the same codes; Airflow does not retry a Spark task that ends
with 2 or 4. `evenlag assign` ends with 1 if a problem was malformed: its answer is `{"error": …}`. Times must
be in the years 1970 to 2999; a time without an offset is UTC.

Any other error is a fault of evenlag; its traceback is in the log."""


def render_errors() -> str:
    """Render the page."""
    classes = [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, JobError) and one is not JobError
    ]
    classes.sort(key=lambda one: (one.exit_code, one.__name__))
    codes = sorted({JobError.exit_code, *(one.exit_code for one in classes)})
    rows = (
        [
            f"`{one.__name__}`",
            str(one.exit_code),
            "yes" if one.retriable else "no",
            _when(one),
        ]
        for one in classes
    )
    return page(
        "Errors and exit codes",
        "`evenlag/errors.py`",
        [
            _ERRORS,
            "## Exit codes",
            table(("code", "meaning"), ([str(code), _MEANINGS[code]] for code in codes)),
            _OTHER_CODES,
            "## Errors",
            "*Retriable*: the same call may succeed later without any change.",
            table(("error", "exit code", "retriable", "when"), rows),
        ],
    )


def _when(error: type[JobError]) -> str:
    first = " ".join(inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].split())
    return first.removeprefix("Raised ").removesuffix(".")


_RECORDS: Final = """\
Each record is one decision that a newcomer would question: its context, what was decided, and what follows.
Records of decisions that no longer hold are deleted; git keeps them
([ADR 1](0001-record-architecture-decisions.md))."""


def render_records(folder: Path = ROOT / "docs" / "adr") -> str:
    """Return the index in Markdown: number and title of each record, the newest first."""
    return page("Decision records", "the records", [_RECORDS, "\n".join(_record_items(folder))])


def _record_items(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("[0-9]*.md"), reverse=True):
        title = re.match(r"# (\d+\. .+)", path.read_text(encoding="utf-8"))
        if title is None:
            raise ValueError(f"{path.name}: a record begins with its number and title")
        yield f"- [{title[1]}]({path.name})"


_GATES: Final = """\
Look up why a plan was rejected. A plan that fails any gate is REJECTED; the plans of the other groups
continue. A gate that could not be evaluated fails the task `decide`, and nothing is approved.

`evenlag plans --group GROUP` shows the status REJECTED with the message under *why*, and `evenlag plans
PLAN_ID` every gate with its value and limit. `gate_results` has a row for each gate of each plan,
`plan_events` the event REJECTED with all messages."""
_GATE_CHECKS: Final = """\
## The checks

Limits with a name are [settings of the rule](reference/policy.md#groups), or of
[its `gates`](reference/policy.md#groupsgates). *Alert*: a failure raises the alert `PLAN_REJECTED`; healthy
groups fail the other gates regularly. *Simulated*: a [comparison](comparison.md) applies the gate."""
_GATE_EXAMPLES: Final = """\
## A failing plan for each gate

`tests/end_to_end/test_modes_and_gates.py` has each of these plans."""
_GATE_NOTES: Final = """\
An unknown value fails its gate with `… is not known, so … cannot be passed`, except for `min_gain`,
`saves_time`, `cross_rack` and `cooldown`. A partition is missing by the subscriptions in the snapshot.
`payload_fits` reserves 2,048 bytes of a record for envelope, key and headers; without a hint topic, Kafka's
default of 1,048,588 bytes applies.

A plan that passes is approved by the policy in mode `auto` and by a user in mode `approve`, and stays
PROPOSED in `shadow`. If the policy has a group in `shadow`, `hint_protocol` and `hint_assignor` reject no
plan: it says what would be if the group followed. The publisher
[checks an approved plan again](reference/publishing.md)."""


def render_gates(gates: Iterable[Gate] = GATES) -> str:
    """Render the page of gates."""
    chosen = tuple(gates)
    checks = table(("gate", "fails when", "limit", "alert", "simulated"), map(_gate_check, chosen))
    examples = table(
        ("gate", "a plan that fails it", "message", "`observed`, `allowed`"), map(_gate_example, chosen)
    )
    parts = [_GATES, _GATE_CHECKS, checks, _GATE_EXAMPLES, examples, _GATE_NOTES]
    return page("Gates", "`evenlag/policy/gates.py`", parts)


def _gate_check(gate: Gate) -> tuple[str, ...]:
    alert = "no" if gate.is_routine else "yes"
    simulated = "yes" if gate.not_simulated is None else "no"
    return f"`{gate.name}`", gate.fails_when, _gate_limit(gate), alert, simulated


def _gate_example(gate: Gate) -> tuple[str, ...]:
    example = EXAMPLES[gate.name]
    message = gate.explain(example.observed, example.allowed)
    return f"`{gate.name}`", example.plan, message, f"`{example.observed}, {example.allowed}`"


def _gate_limit(gate: Gate) -> str:
    limit = gate.limit
    if isinstance(limit, Fixed):
        return f"`{limit.value}`"
    if isinstance(limit, PlanLimit):
        return "by the plan"
    plus = 0 if isinstance(limit, GateSetting) else limit.plus
    return f"{plus} + `{limit.name}`" if plus else f"`{limit.name}`"


_TABLES: Final = """\
Query evenlag's snapshots, plans and results with any reader of Delta tables: one folder each under the lake
root.

- Timestamps are UTC. Units are part of the name: `_ms`, `_records`, `_records_per_s`.
- {by_day} are partitioned by `cluster` and `day`, all other tables by `cluster` and `month`. Filter by
  `cluster` and `day`: both prune files.
- Use rows of `offsets`, `commits`, `members` and `lag` only if `snapshots` has their marker, and of
  `plan_assignments` only if `plans` has their plan: others are from a run that was killed. The key of a table
  then identifies a row of a cluster. [SQL views](how-to/query-with-sql.md) have these rows only.
- The jobs enforce `NOT NULL`. For Spark every column is nullable. New versions only
  [add nullable columns](upgrade.md).
- *Kept* is the [retention](how-to/maintain-the-lake.md) by `maintenance` of the policy."""
_KEPT: Final = {
    **dict.fromkeys(("offsets", "commits", "members"), "`raw_days`"),
    **dict.fromkeys(("snapshots", "lag"), "`raw_days`, then hourly `hourly_days`"),
    **{
        name: f"`retention_days` ({'permanently' if days is None else f'{days} days'})"
        for name, days in RETENTION_DAYS.items()
    },
}
_COMMON_COLUMN_FROM: Final = 3
"""Columns of at least this many tables are described once."""
_WRITERS: Final = {"spark": "Spark", "direct": "`deltalake`"}
_COLUMN_HEADER: Final = ("column", "description")


def render_tables(tables: Iterable[Table] = tuple(TABLES.values())) -> str:
    """Render the page of tables, in the order of their contracts."""
    chosen = tuple(tables)
    by_day = [f"`{one.name}`" for one in TABLES.values() if not one.is_by_month]
    named = f"{', '.join(by_day[:-1])} and {by_day[-1]}"
    common = _common_columns(chosen)
    parts = [_TABLES.format(by_day=named), " · ".join(f"[{one.name}](#{one.name})" for one in chosen)]
    if common:
        parts += ["## Common columns", table(_COLUMN_HEADER, map(_column_row, common))]
    for one in chosen:
        parts += _table_section(one, common, chosen)
    return page("The tables", "`evenlag/lake/tables/`", parts)


def _common_columns(tables: Iterable[Table]) -> list[Column]:
    """Return the columns that several tables have with the same name, type and description."""
    counts = Counter(column for one in tables for column in one.stored_columns).most_common()
    most_used = {column.name: column for column, _ in reversed(counts)}
    return [
        column
        for column, count in counts
        if count >= _COMMON_COLUMN_FROM and most_used[column.name] == column
    ]


def _table_section(one: Table, common: Iterable[Column], tables: Iterable[Table]) -> Iterator[str]:
    yield f"## {one.name}"
    yield (
        f"One row is {one.doc}.\n\n"
        f"Key: {', '.join(f'`{name}`' for name in one.key)}. Written by {_WRITERS[one.writer]}. "
        f"Kept: {_KEPT.get(one.name, 'permanently')}."
    )
    same = next((other for other in tables if other.stored_columns == one.stored_columns), one)
    if same is not one:
        yield f"The columns are those of [{same.name}](#{same.name})."
        return
    shared = [column for column in one.stored_columns if column in common]
    if shared:
        yield f"Common columns: {', '.join(f'`{column.name}`' for column in shared)}."
    yield table(
        _COLUMN_HEADER, (_column_row(column) for column in one.stored_columns if column not in shared)
    )


def _column_row(column: Column) -> tuple[str, ...]:
    required = "" if column.nullable else " NOT NULL"
    return f"`{column.name}` `{column.type}{required}`", column.doc


_COMMANDS: Final = """\
Look up a command or an option. Each command has `--help`. A command group runs its subcommand `show` if none
is named: `evenlag plans` is `evenlag plans show`. All commands have the same [exit codes](errors.md).
`evenlag --install-completion` makes the shell complete commands and options."""
_OUTPUT: Final = """\
## Output

`-o` selects `table` (default), `wide` (all columns) or `json` (the same as `--json`; use it in scripts). A
table fits the terminal: texts wrap, then columns are left out, and its last line names them. Identifiers and
numbers are never cut; where they do not fit, a row takes several lines."""
_OPTION_HEADER: Final = ("option", "meaning")
_COMMON_FROM: Final = 3
"""Options of at least this many commands are described once."""


def render_command() -> str:
    """Render the page."""
    root: Any = typer.main.get_command(app)
    commands = list(_commands(root, "evenlag"))
    rows = {name: list(_option_rows(command)) for name, command in commands}
    common = _common(rows.values())
    index = " · ".join(f"[`{name}`](#{_anchor(name)})" for name, _ in commands)
    parts = [_COMMANDS, index, _OUTPUT, "## Common options", table(_OPTION_HEADER, common)]
    for name, command in commands:
        parts += [f"## {name}", _help_text(command.help or ""), f"```\n{_usage(name, command)}\n```"]
        own = [row for row in rows[name] if row not in common]
        if own:
            parts.append(table(_OPTION_HEADER, own))
        shared = [row[0].split()[0] for row in rows[name] if row in common]
        if shared:
            parts.append(f"Common options: {', '.join(shared)}.")
    return page("Command", "the command's own help, in `evenlag/cli`,", [part for part in parts if part])


def _common(rows: Iterable[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return the options that several commands have with the same meaning, one for each name."""
    counts = Counter(row for of_command in rows for row in of_command).most_common()
    most_used = {row[0]: row for row, _ in reversed(counts)}
    return [row for row, count in counts if count >= _COMMON_FROM and most_used[row[0]] == row]


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that can be called, with its complete name."""
    for child_name, child in sorted(getattr(command, "commands", {}).items()):
        if child.hidden:
            continue
        if hasattr(child, "commands"):
            yield from _commands(child, f"{name} {child_name}")
        else:
            yield f"{name} {child_name}", child


def _usage(name: str, command: Any) -> str:
    arguments = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
            arguments.append(shown if parameter.required else f"[{shown}]")
    return " ".join([name, *arguments, "[OPTIONS]"])


def _option_rows(command: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            yield f"`{parameter.name.upper()}`", _help_text(parameter.help or "")
            continue
        names = " ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
        yield names, f"{_help_text(parameter.help or '')}{_option_default(parameter)}"


def _option_default(parameter: Any) -> str:
    """What is said of the default, after the meaning; nothing if it is none, a flag or computed."""
    if parameter.required:
        return " Must be given."
    value = parameter.default
    is_said = isinstance(value, int | float | str) and not isinstance(value, bool) and value != ""
    return f" Default: `{value}`." if is_said else ""


def _help_text(text: str) -> str:
    """The help without the marks of the terminal; a placeholder must not be read as HTML."""
    return re.sub(r"<(\w+)>", r"`<\1>`", text.replace("\b", "")).strip()


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


_SETTINGS: Final = """\
Every key of the policy file. [The policy file](policy-file.md) explains how to write it; `evenlag policy
check` validates a file, and `evenlag policy schema` prints its JSON schema for editors. Schedules are in UTC.
Lists of clusters, brokers and approvers may be one text with commas."""
_SETTING_HEADER: Final = ("key", "default", "value", "meaning")
_REFERENCE: Final = "SecretRef"
_TYPES: Final = {
    "object": "mapping",
    "integer": "integer",
    "number": "number",
    "boolean": "`true` or `false`",
}
_BOUNDS: Final = (
    ("exclusiveMinimum", "above {}"),
    ("minimum", "from {}"),
    ("exclusiveMaximum", "below {}"),
    ("maximum", "to {}"),
)


def render_policy() -> str:
    """Render the page."""
    schema = Policy.model_json_schema()
    parts = [_SETTINGS]
    for path, model in _sections(schema, schema["$defs"], ""):
        parts += [f"## {f'`{path}`' if path else 'The file'}", _first_paragraph(model.get("description", ""))]
        parts.append(table(_SETTING_HEADER, _setting_rows(model, schema["$defs"])))
    return page("Policy settings", "the models of `evenlag/policy`", [part for part in parts if part])


def _first_paragraph(text: str) -> str:
    """The first paragraph of a docstring as Markdown, with links to the pages that it names."""
    first = text.partition("\n\n")[0].replace("``", "`")
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", first)


def _sections(
    model: Mapping[str, Any], models: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each section of the file with its path, in the order of the models."""
    yield path, model
    for name, field in model["properties"].items():
        below = f"{path}.{name}" if path else name
        for suffix, choice in _objects(field):
            found = models[choice]
            if found.get("type") == "object" and choice != _REFERENCE:
                yield from _sections(found, models, below + suffix)


def _objects(field: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the models that a setting takes, with what its path has for one of several."""
    for choice in (field, *field.get("anyOf", ())):
        if "$ref" in choice:
            yield "", _model_name(choice)
        if "$ref" in choice.get("items", {}):
            yield "[]", _model_name(choice["items"])
        values = choice.get("additionalProperties")
        patterns = choice.get("patternProperties", {})
        for value in (values, *patterns.values()):
            if isinstance(value, dict) and "$ref" in value:
                yield ".<name>", _model_name(value)


def _setting_rows(model: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[list[str]]:
    required = set(model.get("required", ()))
    for name, field in model["properties"].items():
        yield [
            f"`{name}`",
            "must be given" if name in required else _setting_default(field),
            _value(field, models),
            field.get("description", ""),
        ]


def _value(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """The type with its range, or the values to choose from."""
    kind, allowed = _type(field, models), _allowed_values(field, models)
    if not allowed:
        return kind
    return f"{kind} {allowed}" if kind in {"integer", "number"} else allowed


def _setting_default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "as below" if "$ref" in field else _entries(value)
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value) or "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _entries(values: Mapping[str, Any]) -> str:
    """The keys of a mapping by their value."""
    names: dict[Any, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(f"`{name}`")
    texts = (f"{'none' if value is None else value}: {', '.join(of)}" for value, of in names.items())
    return "; ".join(texts) or "none"


def _type(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    choices = [choice for choice in field.get("anyOf", [field]) if choice.get("type") != "null"]
    return " or ".join(dict.fromkeys(_one_type(choice, models) for choice in choices))


def _one_type(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = _model_name(field)
        if name == _REFERENCE:
            return "`{env: NAME}` or `{file: PATH}`"
        return "section" if models[name].get("type") == "object" else "text"
    if field.get("type") == "array":
        inner = _type(field["items"], models)
        return f"list of {inner}s" if inner.isalpha() else f"list of: {inner}"
    return _TYPES.get(field.get("type", ""), "text")


def _allowed_values(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    parts = []
    for choice in field.get("anyOf", [field]):
        if "$ref" in choice and "enum" in models[_model_name(choice)]:
            parts.append(", ".join(f"`{value}`" for value in models[_model_name(choice)]["enum"]))
        elif bounds := [text.format(_number(choice[key])) for key, text in _BOUNDS if key in choice]:
            parts.append(" ".join(bounds))
    return ", ".join(parts)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _model_name(reference: Mapping[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/assignors.md": render_assignors,
    "docs/reference/command.md": render_command,
    "docs/reference/policy.md": render_policy,
    "docs/reference/errors.md": render_errors,
    "docs/gates.md": render_gates,
    "docs/tables.md": render_tables,
    "docs/adr/README.md": render_records,
}
"""What renders each page."""


def outdated() -> list[str]:
    """Return the pages that differ from the code."""
    return [
        name
        for name, render in PAGES.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != render()
    ]


def main(argv: list[str] | None = None) -> int:
    """Write the pages that are outdated; with ``--check`` return 1 if there are any."""
    arguments = sys.argv[1:] if argv is None else argv
    names = outdated()
    for name in names:
        print(name)
        if "--check" not in arguments:
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main())
