"""A Slurm of one node in a temporary folder: `with slurm(folder): ...`. Needs root and the Debian packages slurmctld, slurmd, slurm-client and munge."""
import os, shutil, socket, subprocess, time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ('slurmctld', 'slurmd', 'squeue', 'munged')

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=2,batch_sched_delay=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""

def missing():
    "Why Slurm cannot run here; None if it can"
    path = os.environ['PATH'] + ':/usr/sbin'
    if absent := [p for p in PROGRAMS if not shutil.which(p, path=path)]: return f'not installed: {", ".join(absent)} (Debian: slurmctld slurmd slurm-client munge)'
    if os.geteuid(): return 'a Slurm of its own needs root'

def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets: s.bind(('127.0.0.1', 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets: s.close()
    return ports

def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f'{what} did not happen within {seconds} s'
        time.sleep(.3)

@contextmanager
def slurm(folder):
    "While the block runs, SLURM_CONF names a Slurm of one node with two processors"
    folder, host = Path(folder), socket.gethostname().split('.')[0]
    for name in ('munge', 'state', 'spool'): (folder/name).mkdir(parents=True)
    for p in [folder, *folder.parents]:
        if p != Path(p.anchor) and p.stat().st_uid == os.geteuid(): os.chmod(p, p.stat().st_mode | 0o755)  # munged runs as another user
    (folder/'munge'/'key').write_bytes(os.urandom(128))
    for p in (folder/'munge', folder/'munge'/'key'): shutil.chown(p, 'munge', 'munge'); os.chmod(p, 0o755 if p.is_dir() else 0o400)
    (folder/'slurm.conf').write_text(CONF.format(host=host, folder=folder, ports=free_ports(2)))
    munge = folder/'munge'
    env = {**os.environ, 'SLURM_CONF': str(folder/'slurm.conf'), 'PATH': os.environ['PATH'] + ':/usr/sbin'}
    commands = [['runuser', '-u', 'munge', '--', 'munged', '-F', '--force', f'--key-file={munge}/key', f'--socket={munge}/socket', f'--pid-file={munge}/pid', f'--log-file={munge}/log', f'--seed-file={munge}/seed'],
                ['slurmctld', '-D'], ['slurmd', '-D', '-N', host]]
    daemons, before = [], os.environ.get('SLURM_CONF')
    try:
        for i, command in enumerate(commands):
            daemons.append(subprocess.Popen(command, env=env, stdout=open(folder/f'daemon{i}.log', 'w'), stderr=subprocess.STDOUT, start_new_session=True))
            if i == 0: wait_for((munge/'socket').exists, 20, 'the socket of munged')
        os.environ['SLURM_CONF'] = env['SLURM_CONF']
        wait_for(lambda: 'idle' in subprocess.run(['sinfo', '-h', '-o', '%T'], capture_output=True, text=True, env=env).stdout, 60, 'an idle node')
        yield
    finally:
        subprocess.run(['scancel', '--me', '--full', '-s', 'KILL'], env=env, capture_output=True, timeout=20)
        os.environ.pop('SLURM_CONF') if before is None else os.environ.update(SLURM_CONF=before)
        for daemon in reversed(daemons):
            daemon.terminate()
            try: daemon.wait(10)
            except subprocess.TimeoutExpired: daemon.kill()
