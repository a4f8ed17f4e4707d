"""The comments of the public headers keep to their pattern, and the program of their examples finds what is untrue.

Arguments: --ops NAME,... and the public headers. Standard library only."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

OPS = sys.argv[2].split(",")
HEADERS = {path.name: path for path in map(pathlib.Path, sys.argv[3:]) if path.suffix == ".h"}
sys.argv = sys.argv[:1] + [word for word in sys.argv[3:] if not word.endswith(".h")]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import examples  # noqa: E402

# What a contract says, in this order; the rest may be left out.
LABELS = ["Shapes", "Dtypes", "Units", "Accuracy", "Memory", "Async", "Errors", "Source", "Example"]
OPTIONAL = {"Units", "Source"}
# Declares no more than a macro that other headers use; lists numbers that grad_norm.h explains by example.
WITHOUT_EXAMPLE = {"op.h", "step_control.h"}
DECLARATION = re.compile(r"^(?:template|struct|class|enum|using|inline|constexpr|const|[A-Za-z_][\w:<>*& ]*\()")


def comment_before(text, declaration):
    """The lines of the comment that ends where the declaration begins."""
    lines = text[:text.index(declaration)].splitlines()
    comment = []
    for line in reversed(lines):
        if not line.startswith("///"):
            break
        comment.insert(0, line)
    return comment


def labels_of(comment):
    found = [re.match(r"/// (\w+)(?:\s|$)", line) for line in comment]
    return [match[1] for match in found if match and match[1] in LABELS]


class Contracts(unittest.TestCase):
    maxDiff = None

    def test_every_op_says_all_that_a_contract_says_in_order(self):
        for op in OPS:
            text = HEADERS[op + ".h"].read_text()
            first = re.search(r"^(?:struct|using) (\w+) (?:(?:: \w+ )?{|= \w+;)", text, re.MULTILINE)
            comment = comment_before(text, first[0])
            labels = labels_of(comment)
            self.assertEqual(labels, [label for label in LABELS if label in labels], op + ": the order")
            self.assertEqual(set(LABELS) - OPTIONAL - set(labels), set(), op + ": what its contract does not say")
            self.assertFalse(labels_of(comment[:1]), op + ": the comment begins with what the op computes")

    def test_every_backward_has_its_example(self):
        for op in OPS:
            text = HEADERS[op + ".h"].read_text()
            for name in re.findall(r"^((?:struct|using) \w+Backward) [:=]", text, re.MULTILINE):
                self.assertIn("Example", labels_of(comment_before(text, name)), name)

    def test_every_header_has_an_example(self):
        for name, path in HEADERS.items():
            if name not in WITHOUT_EXAMPLE:
                self.assertTrue(list(examples.examples_of(path.read_text())), name)

    def test_every_paragraph_of_declarations_is_commented(self):
        bare = []
        for name, path in HEADERS.items():
            text = re.sub(r"^(?:#.*\\\n(?:.*\\\n)*.*|SCANTAPE_\w+\(.*|(?:inline )?namespace .*|}  // namespace.*)$",
                          lambda match: "\n" * match[0].count("\n"), path.read_text(), flags=re.MULTILINE)
            # Types that are described where they are defined; functions of a class, described where they are declared.
            text = re.sub(r"^(?:class|struct) \w+;$", "", text, flags=re.MULTILINE)
            text = re.sub(r"^(template <[^>]*>)(?=\n\w+ \w+::)", r"\1  // in the class", text, flags=re.MULTILINE)
            depth, before = 0, ""
            for number, line in enumerate(text.splitlines(), 1):
                if depth == 0 and DECLARATION.match(line) and not before.strip() and "//" not in line:
                    bare.append("{}:{}: {}".format(name, number, line))
                depth += line.count("{") - line.count("}")
                before = line
        self.assertEqual(bare, [])


class Examples(unittest.TestCase):
    def make(self, comment, readme=""):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder) / "include/scantape/planted.h"
            header.parent.mkdir(parents=True)
            header.write_text(comment)
            (header.parent / "README.md").write_text(readme)
            out = header.parent / "out.cpp"
            subprocess.run([sys.executable, examples.__file__, out, header.parent / "README.md", header], check=True)
            return out.read_text()

    def test_code_and_claims_are_taken_out(self):
        made = self.make("/// Doubles.\n///\n/// Example\n///   #include <cmath>\n///   const double y = 2 * 3;  // y is 6\n"
                         "/// Source  nobody\nint twice(int x);\n")
        self.assertIn("const double y = 2 * 3;", made)
        self.assertRegex(made, r'example::check\("planted.h:5", "y", y, \{6\}\);')
        self.assertLess(made.index("#include <cmath>"), made.index("namespace"))
        self.assertNotIn("nobody", made)
        self.assertEqual(made.count("example::run("), 1)

    def test_a_readme_block_is_a_program(self):
        made = self.make("int x;\n", "text\n```cpp\n#include <cstdio>\nint main() {\n  f();\n}\n```\n```sh\nls\n```\n")
        self.assertIn("namespace readme_0", made)
        self.assertIn("int program()", made)
        self.assertEqual(made.count("int main()"), 1)
        self.assertNotIn("readme_1", made)


if __name__ == "__main__":
    unittest.main(verbosity=2)
