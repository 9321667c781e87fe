"""Subscriptions: the bytes as recorded from 0.7.2, its trimming, and topic filters against java.util.regex itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from kafka07c.errors import InvalidTopicError
from kafka07c.java import java_command
from kafka07c.java_regex import compile_java
from kafka07c.subscription import Blacklist, Subscription, TopicFilter, Whitelist

GOLDEN = Path(__file__).parent / "golden07"


def recorded() -> dict[str, bytes]:
    nodes = {}
    for file in sorted((GOLDEN / "zk").glob("*.json")):
        for node in json.loads(file.read_text()):
            if node["path"].startswith("/consumers/") and node["path"].split("/")[3:4] == ["ids"] and node["data"]:
                nodes[f"{file.name} {node['path']}"] = node["data"].encode()
    return nodes


# The node's bytes


@pytest.mark.parametrize("data", recorded().values(), ids=recorded())
def test_what_a_0_7_2_consumer_registered_is_read_and_written_alike(data):
    assert Subscription.decode(data).encode() == data


def test_the_recordings_hold_all_three_kinds():
    assert {data[:1] for data in recorded().values()} == {b"{", b"*", b"!"}


def test_each_kind_is_written_as_recorded():
    assert Subscription.topics({"plain": 2, "gzip": 1}).encode() == b'{ "plain": 2,"gzip": 1 }'
    assert Subscription.whitelist("plain|snappy|mixed", 2).encode() == b"*2*plain|snappy|mixed"
    assert Subscription.blacklist("[^ps].*|plain|seg.*", 1).encode() == b"!1![^ps].*|plain|seg.*"
    assert Subscription.filtered(Whitelist("a.*"), 4) == Subscription.whitelist("a.*", 4)


def test_topics_by_name():
    subscription = Subscription.decode(b'{ "plain": 2,"gzip": 1 }')
    assert not subscription.is_filter
    assert [subscription.threads_for(topic) for topic in ("plain", "gzip", "plain2")] == [2, 1, 0]
    assert subscription.matches("gzip") and not subscription.matches("snappy")


def test_topics_by_filter():
    white, black = Subscription.decode(b"*2*plain|seg.*"), Subscription.decode(b"!3!plain|seg.*")
    assert white.is_filter and black.is_filter
    assert [white.threads_for(topic) for topic in ("plain", "seggz", "plain2", "aseg")] == [2, 2, 0, 0]
    assert [black.threads_for(topic) for topic in ("plain", "seggz", "plain2", "aseg")] == [0, 0, 3, 3]


def test_a_member_may_want_no_topic():
    assert Subscription.topics({}).encode() == b"{  }"  # as 0.7.2 builds it
    assert Subscription.decode(b"{  }").topic_threads == {}


@pytest.mark.parametrize(
    "data",
    [
        None, b"", b"{", b"[]", b'"plain"', b"3", b'{ "plain": 0 }', b'{ "plain": -1 }', b'{ "plain": true }',
        b'{ "plain": "2" }', b'{ "plain": 1.0 }', b'{ "plain": 2147483648 }', b'{ "plain": null }', b"\xff\xfe",
        b"**a", b"*a*b", b"*2!b", b"!2*b", b"*0*b", b"*-1*b", b"*99999999999*b", b"*2147483648*b", b"*2*[", b"!1!(",
        b"*1*a\nb", b"*\xd9\xa1*a", b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_node_that_makes_no_sense_is_named(data):
    with pytest.raises(ValueError, match="the subscription .* cannot be read: "):
        Subscription.decode(data)


@pytest.mark.parametrize("topic", ['a"b', "a\\b"])
def test_a_name_that_0_7_could_not_read_back_is_refused(topic):
    with pytest.raises(ValueError, match="cannot be subscribed to by name"):
        Subscription.topics({topic: 1})


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\nb", "a" * 256])
def test_a_name_that_no_broker_takes_is_refused(topic):
    with pytest.raises(InvalidTopicError):
        Subscription.topics({topic: 1})


@pytest.mark.parametrize("threads", [0, -1, True, "2", 2**31])
def test_a_number_of_threads_that_cannot_be_is_refused(threads):
    for make in (lambda: Subscription.topics({"a": threads}), lambda: Subscription.whitelist("a", threads)):
        with pytest.raises(ValueError, match="expected 1 or more"):
            make()


letters = st.characters(max_codepoint=0xD7FF, exclude_characters='"\\/', exclude_categories=["Cc"])
topic_names = st.text(letters, min_size=1, max_size=50).filter(lambda name: name not in (".", ".."))


@settings(deadline=None)
@given(st.dictionaries(topic_names, st.integers(1, 1000), max_size=5))
def test_topics_come_back(threads):
    subscription = Subscription.decode(Subscription.topics(threads).encode())
    assert dict(subscription.topic_threads) == threads


# Filter texts


@pytest.mark.parametrize(
    ("text", "regex"),
    [
        ("a,b", "a|b"), (" a , b ", "a|b"), ('"a,b"', "a|b"), ("'a b'", "ab"), ('"\'a', "a"), ("a'b", "a'b"),
        ("\ta\n", "a"), ('" a"', "a"), ('"\ta"', "a"), ("\u00a0a", "\u00a0a"), ("", ""),
    ],
)  # fmt: skip
def test_a_filter_text_is_trimmed_as_0_7_does(text, regex):
    assert Whitelist(text).regex == regex
    assert Subscription.decode(f"*1*{Whitelist(text).regex}".encode()).topic_filter.regex == regex


def test_a_member_trims_what_another_has_registered_untrimmed():
    assert Subscription.decode(b'*1*"a, b"').matches("b")


@settings(deadline=None)
@given(st.text("ab,| \t\"'", max_size=12))
def test_what_is_registered_is_not_altered_by_trimming_it_again(text):
    try:
        regex = Whitelist(text).regex
    except ValueError:
        return
    assert Whitelist(regex).regex == regex


def test_a_comma_in_a_repetition_is_explained():
    with pytest.raises(ValueError, match=r"0\.7 reads each comma of a filter as \|"):
        Whitelist("a{1,3}")


def test_a_line_break_in_a_filter_is_refused():
    with pytest.raises(ValueError, match="line break"):
        Whitelist("a\nb")


def test_a_filter_is_one_or_the_other():
    assert Whitelist("a") != Blacklist("a")
    with pytest.raises(TypeError):
        TopicFilter("a")


def test_a_pattern_with_an_exclusion_is_one_whitelist():
    subscription = Subscription.whitelist("click.*, order.*", 2, exclude=".*-test, orders")
    assert subscription.encode() == rb"*2*(?!(?:.*-test|orders)\z)(?:click.*|order.*)"
    for each in (subscription, Subscription.decode(subscription.encode())):
        wanted = [topic for topic in ("clicks", "clicks-test", "orders", "orders2", "x") if each.matches(topic)]
        assert wanted == ["clicks", "orders2"]


@pytest.mark.parametrize("pattern, exclude", [("a(", "b"), ("a", "b)"), ("a", "(?:b"), (r"\Qa", "b"), ("a", r"\Qb")])
def test_neither_part_of_an_exclusion_can_break_out_of_it(pattern, exclude):
    with pytest.raises(ValueError, match="is refused"):
        Subscription.whitelist(pattern, exclude=exclude)


def test_flags_of_one_part_do_not_leak_into_the_other():
    subscription = Subscription.whitelist("a.*", exclude="(?i)ab")
    assert not subscription.matches("aB") and subscription.matches("ac") and not subscription.matches("Ac")


# Regular expressions as Java reads them

NAMES = [
    "", "a", "b", "A", "ab", "aB", "AB", "abc", "aab", "aaab", "abab", "clicks", "Clicks", "clicks-eu", "clicks.eu",
    "clicks_1", "0", "12", "a1", "1a", "-", "_", ".", "a.b", "a*b", "a b", "&", "a&b", "^", "$", "]", "[", "}", "{",
    "|", "\\", "\\d", "#", "z", "Z", "é", "É", "ß", "aé", "k", "K", "\u212a", "ı", "漢", "\u0661", "\U0001f600",
    "\u00a0", "\u2028", "a\u2028", "\u0085", "\n", "a\n", "a\r\n", "\r\n", "\t", "\x0b", "\x1b", "\x07",
]  # fmt: skip

CARRIED_OVER = [
    "", "a", "a|b", "a|", "|", "()", "(?:)", "a.b", ".", ".*", "(?s).*", "(?s:.)b|a.", "a$", "^a$", "^*a$*",
    "$", "a$.*",
    "(?=.*$)a.*", r"a\Z.*", r"a\z", r"a\Z(?s:.*)", "(?s)a.$.", r"(?s)a.\Z.", "(?s).$.*", r"\Aa", "(?!foo$).*", "(?!a$)(?s:.*)", "a?", "a??", "a?+", "a*+a",
    "a*+b", "(?:ab?)*+", "(?:a|ab){2}+", "(?:a|ab){1,2}+b", "(?>a|ab)", "(?>a|ab)b", "(?>a*)ab", "a{2}", "a{2,}",
    "a{1,2}", "a{0}", "a{1,2}?b", "(a|b)*", "(?<x>a)b", "(?<x>a)(?<y>b)", "(?i)ab", "(?i)a(?-i)b", "(?i:a)b",
    "((?i)a)b", "a(?i)b|c", "(?i)k", "(?i)[k]", "(?i)é", "(?i)[a-z]+", "(?i)[Z-a]", "(?i)[^a]", "(?i)\\x41", "(?is)a.",
    "(?i-s)a", "(?-i)a", "[abc]", "[^abc]", "[a-c]", "[a-]", "[-a]", "[a-c-]", "[]a]", "[^]a]", "[a^]", "[a&b]", "[&]",
    "[a&&a]", "[a-z&&[def]]", "[a-z&&[^b]]", "[a-z&&[^b]&&[^a]]", "[a-c&&b-d]", "[a[bc]]", "[a[^b]]", "[[a][b]]",
    "[a&&b]", "[!-&&a]", r"[\w&&[^\d_]]+", r"[\d\-_]", r"[\w-]", r"[\[\]]", r"[\\]", r"[^\s\d]", r"\d+", r"\D",
    r"\w+", r"\W",
    r"\s", r"\S", r"\p{Alpha}+", r"\P{Alpha}", r"\p{Lower}", r"\p{Upper}", r"\p{Alnum}+", r"\p{Punct}", r"\p{Graph}",
    r"\p{Print}", r"\p{Blank}", r"\p{Cntrl}", r"\p{XDigit}", r"\p{Space}", r"\p{ASCII}", r"\p{Digit}",
    r"[\p{Alpha}\d]+",
    r"\Qa.b\E", r"\Qa*b\E", r"\Qab\E*", r"\Q\\E", r"\Q\\E|a", r"\\Qa", r"[\Q]^\E]", r"a\Q\Eb", r"\Q12\E",
    r"a\.b", r"\*|a\*b", r"\_",
    r"\é", r"\t", r"\n", r"\e", r"\a", r"\cK", r"\ck", r"\011", r"\07", r"\0141", r"\x61", r"\x{1f600}",
    r"\u0061", r"\u2028",
    "]", "}", "a]", "(?<=a)b", "a(?<=a)b", "a(?<!b)b", "a(?=b)b", "(?!a).*", "(?=a)*ab", r"(?!(?:a.*)\z)(?:.*)",
    "(a?)*", "(a*)*b", "(a|a?)+b", "(?:a{1,2}){2}", "\U0001f600?", "[\U0001f600]", "#", "a#", "(((a)))",
]  # fmt: skip

REFUSED = [
    "*", "+a", "?", "{", "{2}", "a**", "a{", "a{,2}", "a{2,1}", "a{x}", "a{2}{3}", "a+*", "(", ")", "a)", "(a",
    "[", "[a",
    "[]", "[^]", "[b-a]", r"[a-\d]", r"[\d-z]", "[a&&]", "[&&a]", "[a&&&b]", "[a-z&&[a]b]", "[a-z&&b[a]]", "[^a[b]]",
    "[^a&&b]", "\\", r"\b", r"a\B", r"\v", r"\h", r"\H", r"\R", r"\X", r"\V", r"\N{DIGIT ONE}", r"\G", r"\E",
    r"\Qa", r"(a)\1", r"\0", r"\8",
    r"(?<x>a)\k<x>", r"\y", r"\x", r"\x1", r"\u12", r"\x{110000}", r"\ud83d", r"\p", r"\p{", r"\p{L}", r"\pL",
    r"\p{IsAlpha}", r"\p{javaLowerCase}",
    r"\p{Nonsense}", r"(?i)\p{Lower}", r"[\b]", r"[\Qa]", r"[\z]", "(?m)a", "(?x)a", "(?u)a", "(?U)a", "(?d)a",
    "(?q)a", "(?P<x>a)",
    "(?P=x)", "(?#a)", "(?(1)a)", "(?<1>a)", "(?<x>a)(?<x>b)", "(?", "(?i", "(?i)*", "a|*", "(*)", "(?<=a*)b",
    "(?<=a|bc)d",
    "a{9999999999}", "(" * 60 + ")" * 60, "[" * 60 + "a" + "]" * 60, "a" * 70_000,
]  # fmt: skip


@pytest.mark.parametrize("regex", REFUSED)
def test_what_cannot_be_carried_over_is_a_clear_error(regex):
    with pytest.raises(ValueError, match="regular expression"):
        compile_java(regex)


def test_an_error_names_the_expression_and_the_place():
    with pytest.raises(ValueError, match=r"'a\(\?P<x>b\)' is refused: no group of Java's: .*, at '\(\?P<x>b\)'"):
        compile_java("a(?P<x>b)")


class _Java:
    """``java.util.regex`` of a real JVM, through the gateway that pyspark is built on."""

    def __init__(self):
        py4j = pytest.importorskip("py4j.java_gateway")
        import pyspark

        jar = next(Path(pyspark.__file__).parent.glob("jars/py4j-*.jar"))
        port = py4j.launch_gateway(
            jarpath=str(jar), java_path=str(java_command()), javaopts=["-Xmx64m", "-XX:+UseSerialGC"], die_on_exit=True
        )
        self._gateway = py4j.JavaGateway(gateway_parameters=py4j.GatewayParameters(port=port))
        self._error = py4j.Py4JJavaError if hasattr(py4j, "Py4JJavaError") else py4j.Py4JError
        self._pattern = self._gateway.jvm.java.util.regex.Pattern

    def matches(self, regex: str) -> list[str] | None:
        """Those of NAMES that match; None when it is no Java regex."""
        try:
            pattern = self._pattern.compile(regex)
        except self._error as error:
            assert "PatternSyntaxException" in str(error) or "IllegalArgumentException" in str(error)
            return None
        return [name for name in NAMES if pattern.matcher(name).matches()]

    def close(self) -> None:
        self._gateway.shutdown()


@pytest.fixture(scope="module")
def java():
    java = _Java()
    yield java
    java.close()


@pytest.mark.parametrize("regex", CARRIED_OVER)
def test_what_is_carried_over_matches_as_in_java(java, regex):
    pattern = compile_java(regex)
    assert [name for name in NAMES if pattern.fullmatch(name)] == java.matches(regex)


def test_the_one_regex_of_an_exclusion_matches_as_in_java(java):
    subscription = Subscription.whitelist("a.*,(?i)click.*", exclude=r".*\.eu,a")
    assert [name for name in NAMES if subscription.matches(name)] == java.matches(subscription.topic_filter.regex)


pieces = st.sampled_from(
    [
        "a", "b", "A", "é", "1", ".", "^", "$", "|", "(", ")", "(?:", "(?=", "(?!", "(?>", "(?i)", "(?i:",
        "(?s)", "(?-i)", "(?<=",
        "(?<!", "*", "+", "?", "{2}", "{0,1}", "{1,}", "[", "]", "[^", "&&", "-", "a-c", r"\d", r"\W", r"\s",
        r"\p{Alpha}", r"\P{Lower}", r"\.",
        r"\Q", r"\E", r"\x61", r"\t", r"\\", r"\z", r"\Z", "{", "}", "&", "[ab]", "(a|b)", "[a-c&&[^b]]",
    ]
)  # fmt: skip


@given(st.lists(pieces, min_size=1, max_size=9).map("".join))
@example("[^-a]")
@settings(max_examples=400, deadline=None)
def test_any_expression_is_refused_or_matches_as_in_java(java, regex):
    try:
        pattern = compile_java(regex)
    except ValueError:
        return
    assert [name for name in NAMES if pattern.fullmatch(name)] == java.matches(regex)
