#!/usr/bin/env python3
"""Makes one program of all examples in the public headers and in README.md, so that they compile and say the truth.

examples.py OUTPUT.cpp README.md HEADER...

An example is what follows the line 'Example' in a documentation comment, indented, up to the comment's end or its next
label; those of one header are one function, in order, so a later one may use what an earlier one made. A line that ends
in '// NAME is 1, 2.5' is also checked: NAME, a tensor or a number, must hold that to the digits written. In README.md
each block of C++ is a program of its own, which must return 0.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"^\s*///(?: (.*))?$")
LABEL = re.compile(r"^[A-Z]\w+(?:\s|$)")
CLAIM = re.compile(r"//\s*([A-Za-z_][\w.:<>()]*) is (-?[\d.][^;]*)$")


def examples_of(text):
    """(number of the line, code) of each line of the examples in a header."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.match(line)
        if not comment:
            inside = False
            continue
        words = comment[1] or ""
        if words.strip() == "Example":
            inside = True
        elif inside and LABEL.match(words):
            inside = False
        elif inside:
            yield number, words


def claim_of(code, where):
    found = CLAIM.search(code)
    if not found:
        return ""
    return '  example::check("{}", "{}", {}, {{{}}});\n'.format(where, found[1], found[1], found[2])


def header_function(path, name):
    """The examples of one header as a function, and the headers they include; nothing where there are none."""
    includes, body, expected = [], "", None
    for number, code in examples_of(path.read_text()):
        if code.strip().startswith("#include"):
            includes.append(code.strip())
            continue
        if number != expected:
            body += '#line {} "{}"\n'.format(number, path)
        body += code + "\n"
        expected = number + 1
        if claim := claim_of(code, "{}:{}".format(path.name, number)):
            body += claim
            expected = None
    if not body:
        return includes, ""
    return includes, "void {}() {{\n  using namespace scantape;\n{}}}\n\n".format(name, body)


def readme_programs(text):
    """(headers included, code) of each block of C++."""
    for block in re.findall(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = block.splitlines()
        includes = [line for line in lines if line.startswith("#include")]
        code = "\n".join(line for line in lines if not line.startswith("#include"))
        end = code.rindex("}")
        yield includes, code.replace("int main()", "int program()")[:end + len("program") - len("main")] + "  return 0;\n}\n"


def main(arguments):
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    output, readme, headers = arguments[0], pathlib.Path(arguments[1]), [pathlib.Path(path) for path in arguments[2:]]
    includes, functions, calls = set(), "", ""
    for path in headers:
        parts = path.parts[path.parts.index("include") + 1:]
        name = "example_" + "_".join(parts).replace(".", "_")
        more, function = header_function(path, name)
        if function:
            includes |= {'#include "{}"'.format("/".join(parts)), *more}
            functions += function
            calls += '  example::run("{}", {});\n'.format(path.name, name)
    for i, (more, code) in enumerate(readme_programs(readme.read_text())):
        includes |= set(more)
        functions += "namespace readme_{} {{\n{}}}\n\n".format(i, code)
        calls += '  example::program("README.md, block {}", readme_{}::program);\n'.format(i + 1, i)
    text = '#include "example_checks.h"\n{}\n\nnamespace {{\n\n{}}}  // namespace\n\nint main() {{\n{}  return example::end();\n}}\n'
    pathlib.Path(output).write_text(text.format("\n".join(sorted(includes)), functions, calls))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
