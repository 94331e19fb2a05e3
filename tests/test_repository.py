"The tree keeps the rules of the house."
import ast, re, shutil, subprocess, sys
from importlib.util import resolve_name

import pytest

from common import code, lib, module_file, modules, notebooks, read, root, templates

def tree():
    "The files of the repository, those that git ignores left out"
    if not (root/'.git').exists() or not shutil.which('git'): pytest.skip('not a git checkout')
    out = subprocess.run(['git', 'ls-files', '-z', '-co', '--exclude-standard'], cwd=root, capture_output=True, text=True)
    if out.returncode: pytest.skip(f'git cannot list the files: {out.stderr}')
    return [p for o in out.stdout.split('\0') if o and (p := root/o).is_file()]

def names(paths): return sorted(str(p.relative_to(root)) for p in paths)

def test_notebooks_are_small():
    large = {str(p.relative_to(root)): p.stat().st_size for p in notebooks() if p.stat().st_size > 300_000}
    assert not large, f'notebooks above 300 kB, make their outputs smaller: {large}'

def test_every_notebook_with_exports_has_its_module():
    missing = [f'{p.name}: {m}' for p, m in modules().items() if not module_file(m).exists()]
    assert not missing, f'modules never exported, run nbdev-export: {missing}'

def test_no_two_notebooks_export_one_module():
    found = list(modules().values())
    assert len(found) == len(set(found)), f'a module comes from two notebooks: {sorted(found)}'

def test_no_orphan_module():
    by_hand = {'__init__.py', '_modidx.py'}
    orphans = [p for p in lib.rglob('*.py') if p.name not in by_hand and p not in map(module_file, modules().values())]
    assert not orphans, f'modules whose notebook is gone (nbdev-export never deletes), remove them: {names(orphans)}'

def imports(module):
    "The modules of daca_grpo that `module` imports"
    tree, package = ast.parse(module_file(module).read_text(encoding='utf-8')), f'daca_grpo.{module}'.rpartition('.')[0]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level: continue
        base = resolve_name('.' * node.level + (node.module or ''), package)
        for name in [base, *(f'{base}.{o.name}' for o in node.names)]:
            name = name.removeprefix('daca_grpo').strip('.')
            if name and module_file(name).exists(): yield name

def test_modules_import_only_from_earlier_chapters():
    earlier, wrong = set(), []
    for path, module in modules().items():
        wrong += [f'{path.name} imports {o}' for o in imports(module) if o not in earlier]
        earlier.add(module)
    assert not wrong, f'a chapter may import only from chapters before it: {wrong}'

def test_templates_run_under_papermill():
    for path in templates():
        tagged = [c for c in read(path)['cells'] if 'parameters' in c['metadata'].get('tags', [])]
        assert len(tagged) == 1, f'{path.name}: one cell must have the tag "parameters", {len(tagged)} have it'
        assert not any(re.search(r'^#\|\s*(eval|slow|cuda|notest|default_exp|export)', s, re.M) for s in code(path)), \
            f'{path.name}: papermill knows no directives, a template must have none'

def test_readme_is_current():
    out = subprocess.run([sys.executable, '.ci/readme.py', '--check'], cwd=root, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr

def test_nothing_names_a_path_of_one_machine():
    pattern, wrong = re.compile(r'(?<![\w.<>}/-])/(?:work|root|home/\w+|Users/\w+)/'), []
    for path in tree():
        try: text = path.read_text(encoding='utf-8')
        except UnicodeDecodeError: continue
        wrong += [f'{path.relative_to(root)}: {m[0]}' for m in pattern.finditer(text) if path.name != 'test_repository.py']
    assert not wrong, f'paths that exist on one machine only: {wrong}'
