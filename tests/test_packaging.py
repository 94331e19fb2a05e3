"The metadata agree wherever they stand, and what is installed is complete."
import configparser, importlib.metadata, json, os, re, shutil, subprocess, sys, zipfile

import pytest
from packaging.requirements import Requirement
try: import tomllib
except ImportError: import tomli as tomllib

import daca_grpo
from common import lines, modules, root, settings, templates

def requirement(text):
    "A requirement in one spelling, its `extra` marker left out"
    r = Requirement(text)
    marker = re.sub(r'\s*(and\s+)?extra == "\w+"', '', str(r.marker or ''))
    return f"{r.name.lower().replace('_', '-')} {','.join(sorted(map(str, r.specifier)))} {marker}".strip()

def run(*command, cwd, **env):
    "Run `command`; its output, or a failure that shows it"
    out = subprocess.run([sys.executable, *command], cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert out.returncode == 0, f"python {' '.join(command)}\n{out.stdout}"
    return out.stdout

def test_pyproject_and_version_agree_with_settings():
    s, project = settings(), tomllib.loads((root/'pyproject.toml').read_text(encoding='utf-8'))['project']
    assert project['name'] == s['lib_name'], 'pyproject.toml and settings.ini name the package differently'
    assert project['requires-python'] == f">={s['min_python']}", 'pyproject.toml and settings.ini disagree on Python'
    assert daca_grpo.__version__ == s['version'], 'daca_grpo/__init__.py and settings.ini give two versions'
    assert f"## {s['version']}" in (root/'CHANGELOG.md').read_text(encoding='utf-8'), 'CHANGELOG.md lacks this version'

def test_installed_metadata_agree_with_settings():
    s, meta = settings(), importlib.metadata.metadata('daca_grpo')
    again = 'install again: pip install -e ".[dev]"'
    assert meta['Version'] == s['version'], again
    assert meta['Requires-Python'] == f">={s['min_python']}", again
    wanted = {requirement(o) for k in s if k.endswith('requirements') for o in lines(s[k])}
    assert {requirement(o) for o in meta.get_all('Requires-Dist')} == wanted, again

def test_constraints_name_every_requirement():
    s, pinned = settings(), {}
    for line in lines((root/'constraints.txt').read_text(encoding='utf-8')):
        if line.startswith('#'): continue
        r = Requirement(line)
        pinned.setdefault(r.name.lower(), []).append(r)
    for o in [o for k in s if k.endswith('requirements') for o in lines(s[k])]:
        r = Requirement(o)
        assert r.name.lower() in pinned, f'constraints.txt does not pin {r.name}'
        for p in pinned[r.name.lower()]:
            version = str(p.specifier).removeprefix('==')
            assert r.specifier.contains(version), f'constraints.txt pins {p}, settings.ini asks for {r}'

@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    "A wheel built from the source archive, so that the archive is seen to be complete"
    copy, out = tmp_path_factory.mktemp('source')/'copy', tmp_path_factory.mktemp('dist')
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns('.git', '.ci', '.venv', 'venv', 'build', 'dist', '*.egg-info', '__pycache__'))
    run('-m', 'build', '--no-isolation', '--outdir', str(out), cwd=copy)
    return next(out.glob('*.whl'))

@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    "The folder where the wheel is unpacked"
    folder = tmp_path_factory.mktemp('installed')
    with zipfile.ZipFile(wheel) as z: z.extractall(folder)
    return folder

def scripts(installed):
    "The entry points of the wheel"
    config = configparser.ConfigParser(delimiters=['='])
    config.read_string(next(installed.glob('*.dist-info/entry_points.txt')).read_text(encoding='utf-8'))
    return dict(config['console_scripts'])

def test_wheel_is_complete(installed):
    missing = [m for m in modules().values() if not (installed/'daca_grpo'/(m.replace('.', '/') + '.py')).exists()]
    assert not missing, f'modules that the wheel lacks: {missing}'
    assert next(installed.glob('*.dist-info')).joinpath('licenses/LICENSE').exists(), 'the wheel lacks its licence'
    foreign = [p.name for p in installed.iterdir() if p.name != 'daca_grpo' and p.suffix != '.dist-info']
    assert not foreign, f'the wheel installs more than daca_grpo: {foreign}'

@pytest.mark.parametrize('where', ['wheel', 'environment'])
def test_installed_package_works(where, request, tmp_path):
    "Away from the repository every module imports, the templates are found, the commands exist"
    unpacked = request.getfixturevalue('installed')
    program = '''
import importlib, json, sys
from importlib.resources import files
modules, commands = map(json.loads, sys.argv[1:])
for module in modules: importlib.import_module(f'daca_grpo.{module}')
for command in commands:
    module, name = command.split(':')
    assert callable(getattr(importlib.import_module(module), name)), command
import daca_grpo
print(json.dumps([daca_grpo.__file__, sorted(p.name for p in files('daca_grpo.runs').iterdir() if p.name.endswith('.ipynb'))]))
'''
    env = {'PYTHONPATH': str(unpacked)} if where == 'wheel' else {}
    out = run('-c', program, json.dumps(list(modules().values())), json.dumps(list(scripts(unpacked).values())), cwd=tmp_path, **env)
    file, found = json.loads(out.splitlines()[-1])
    if where == 'wheel': assert file.startswith(str(unpacked)), f'imported from {file}, not from the wheel'
    assert found == sorted(p.name for p in templates()), f'{where}: daca_grpo.runs has {found}'
