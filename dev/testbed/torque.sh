#!/bin/bash
# torque.sh FOLDER
#
# Unpacks Slurm's own commands of TORQUE (qsub, qstat, qdel) into FOLDER, without installing them: Debian's package
# conflicts with Grid Engine. Needs apt-get, and Slurm's commands on this machine. With FOLDER/bin first in PATH, they
# submit to the Slurm that SLURM_CONF selects.
set -euo pipefail

mkdir -p "$1/unpacked" "$1/bin"
folder=$(cd "$1" && pwd)
cd "$folder"
apt-get download -qq slurm-wlm-torque libslurm-perl libslurmdb-perl libswitch-perl 2>/dev/null
for package in ./*.deb; do
    dpkg-deb --extract "$package" unpacked
done
modules=$(dirname "$(find "$folder/unpacked/usr/lib" -name Slurm.pm)")
# qsub calls the sbatch beside it.
ln -sf "$(command -v sbatch)" unpacked/usr/bin/sbatch
for command in qsub qstat qdel; do
    {
        echo '#!/bin/sh'
        echo "export PERL5LIB=$modules:$folder/unpacked/usr/share/perl5"
        echo "exec $folder/unpacked/usr/bin/$command \"\$@\""
    } >"bin/$command"
    chmod +x "bin/$command"
done
