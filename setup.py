"Packaging: every fact comes from settings.ini."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=['='], interpolation=None)
config.read_string((here/'settings.ini').read_text(encoding='utf-8'))
s = config['DEFAULT']
lib, suffix = s['lib_name'], '_requirements'

def lines(key): return [o.strip() for o in s[key].splitlines() if o.strip()]

setup(
    name=lib,
    version=s['version'],
    description=s['description'],
    long_description=(here/'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author=s['author'],
    license_expression=s['license'],
    keywords=s['keywords'],
    classifiers=lines('classifiers'),
    python_requires='>=' + s['min_python'],
    install_requires=lines('requirements'),
    extras_require={k[:-len(suffix)]: lines(k) for k in s if k.endswith(suffix)},
    # The papermill templates live among the notebooks and are installed as the package `<lib>.runs`.
    packages=find_packages(include=[lib, f'{lib}.*']) + [f'{lib}.runs'],
    package_dir={f'{lib}.runs': 'nbs/runs'},
    package_data={f'{lib}.runs': ['*.ipynb', '*.yaml', 'accelerate/*.yaml']},
    entry_points={'console_scripts': lines('console_scripts'), 'nbdev': [f'{lib} = {lib}._modidx:d']},
    zip_safe=False,
)
