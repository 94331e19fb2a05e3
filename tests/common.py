"What the tests know of the repository."
import json, re
from configparser import ConfigParser
from pathlib import Path

root = Path(__file__).resolve().parents[1]
lib, nbs = root/'daca_grpo', root/'nbs'

def settings():
    "The metadata in settings.ini"
    config = ConfigParser(delimiters=['='], interpolation=None)
    config.read_string((root/'settings.ini').read_text(encoding='utf-8'))
    return config['DEFAULT']

def lines(text): return [o.strip() for o in text.splitlines() if o.strip()]

def notebooks():
    "Every notebook, in reading order"
    return sorted(p for p in nbs.rglob('*.ipynb') if not any(part[0] in '._' for part in p.relative_to(nbs).parts))

def templates(): return [p for p in notebooks() if p.parent.name == 'runs']

def read(path): return json.loads(path.read_text(encoding='utf-8'))

def code(path):
    "The sources of the code cells of a notebook"
    return [''.join(c['source']) for c in read(path)['cells'] if c['cell_type'] == 'code']

def modules():
    "{notebook: module it exports, 'tasks.gsm8k' for instance}, in reading order"
    found = {p: re.search(r'^#\|\s*default_exp:?\s+(\S+)', '\n'.join(code(p)), re.M) for p in notebooks()}
    return {p: m[1] for p, m in found.items() if m}

def module_file(module): return lib/(module.replace('.', '/') + '.py')
