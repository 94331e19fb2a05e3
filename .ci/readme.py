"""Write README.md from nbs/index.ipynb; with --check, only say whether it is current.

Cells that start with `#| hide` are left out, other directive lines are stripped, outputs are shown as text.
Links in the notebook are relative to nbs/; in README.md they are relative to the root.
"""
import posixpath, re, sys
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter
from traitlets.config import Config

root = Path(__file__).resolve().parents[1]
source, readme = root/'nbs'/'index.ipynb', root/'README.md'
header = '<!-- Generated from nbs/index.ipynb by .ci/readme.py: edit the notebook, not this file. -->\n\n'

_directive = re.compile(r'^#\|.*\n?', re.M)
_hidden = re.compile(r'^#\|\s*hide\s*$', re.M)
_code = re.compile(r'(```.*?```|`[^`\n]*`)', re.S)
_link = re.compile(r'\]\((?![a-z]+:|[#/])([^)\s]+)\)')

def from_root(match):
    "A link as it must stand in README.md; its target must exist"
    path, hash_, anchor = match[1].partition('#')
    path = posixpath.normpath(f'nbs/{path}')
    if not (root/path).exists(): sys.exit(f'nbs/index.ipynb links to {match[1]}: there is no {path}')
    return f']({path}{hash_}{anchor})'

def convert_links(text):
    "`text` with its links made relative to the root; code is left alone"
    parts = _code.split(text)  # odd parts are code
    return ''.join(p if i % 2 else _link.sub(from_root, p) for i, p in enumerate(parts))

def build():
    "The text that README.md must have"
    nb = nbformat.read(source, as_version=4)
    nb.metadata['language_info'] = {'name': 'python'}
    nb.cells = [c for c in nb.cells if c.cell_type != 'raw' and not (c.cell_type == 'code' and _hidden.search(c.source))]
    for cell in nb.cells:
        if cell.cell_type == 'markdown': cell.source = convert_links(cell.source); continue
        cell.source = _directive.sub('', cell.source)
        kinds = {k for o in cell.outputs for k in o.get('data', {})}
        if any(k.startswith('image/') for k in kinds):
            sys.exit('nbs/index.ipynb has an image among its outputs: README.md shows text only, move the figure to a chapter')
    config = Config(NbConvertBase={'display_data_priority': ['text/markdown', 'text/plain']})
    text, _ = MarkdownExporter(config=config).from_notebook_node(nb)
    text = '\n'.join(line.rstrip() for line in text.splitlines())
    return header + re.sub(r'\n{3,}', '\n\n', text).strip() + '\n'

def main():
    text = build()
    current = readme.exists() and readme.read_text(encoding='utf-8') == text
    if '--check' in sys.argv[1:]:
        sys.exit(None if current else 'README.md is behind nbs/index.ipynb: run `python .ci/readme.py`')
    if not current: readme.write_text(text, encoding='utf-8')

if __name__ == '__main__': main()
