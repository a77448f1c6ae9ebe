# Read by slurm.sh and sge.sh: how they say what is wrong, and the options of `up`.

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Reads [-n NODES] [-c CPUS] FOLDER into the variables nodes, cpus and folder. Makes the folder.
read_options() {
    local option
    nodes=4 cpus=2 OPTIND=1
    while getopts n:c: option; do
        case $option in
        n) nodes=$OPTARG ;;
        c) cpus=$OPTARG ;;
        *) usage ;;
        esac
    done
    shift $((OPTIND - 1))
    [ $# = 1 ] || usage
    [ "$(id -u)" = 0 ] || fail "the daemons need root"
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
}
