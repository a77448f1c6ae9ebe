#!/usr/bin/env bash
# Makes the measurement that stands beside one figure of a paper (docs/reference/figures.md).
#
#     dev/tools/paper_figure.sh data-diffusion 39
set -euo pipefail
cd "$(dirname "$0")/../.."

paper=$1 figure=$2
build() {
    cargo build --locked --release -p eyas-cli
}
farm() {
    build
    cargo bench --locked -p eyas-dev --bench farm -- "$@"
}
experiment() {
    build
    EYAS_BIN=${CARGO_TARGET_DIR:-target}/release/eyas "dev/experiments/$@"
}
throughput() {
    cargo build --locked --release -p eyas-cli -p eyas-dev --bins
    EYAS_BIN=${CARGO_TARGET_DIR:-target}/release/eyas \
        SLOW_DISK_BIN=${CARGO_TARGET_DIR:-target}/release/slow-disk \
        dev/experiments/data_throughput.py --figures "$1"
}
eyas() {
    build
    "${CARGO_TARGET_DIR:-target}/release/eyas" "$@"
}

case "$paper $figure" in
    'data-diffusion 3') eyas simulate index ;;
    'data-diffusion 6') cargo bench --locked -p eyas-dev --bench caching ;;
    'data-diffusion '[7-9] | 'data-diffusion '1[01]) throughput 7 ;;
    'data-diffusion '1[2-4]) throughput "$figure" ;;
    'data-diffusion 15')
        for policy in fa mch mcu gcc cost; do farm --only figure-15 --policy "$policy"; done
        ;;
    'data-diffusion 17') farm --only mi-fa --policy fa ;;
    'data-diffusion 18') farm --only mi-gcc-1gb ;;
    'data-diffusion 19') farm --only mi-gcc-1.5gb ;;
    'data-diffusion 20') farm --only mi-gcc-2gb ;;
    'data-diffusion 21') farm --only mi-gcc-4gb ;;
    'data-diffusion 22') farm --only mi-mch-4gb --policy mch ;;
    'data-diffusion 23') farm --only mi-mcu-4gb --policy mcu ;;
    'data-diffusion 30') farm --only sw-fa --policy fa ;;
    'data-diffusion 31') farm --only sw-gcc --policy gcc ;;
    'data-diffusion 32') eyas simulate paper --only sw-gcc-drp ;;
    'data-diffusion 36') farm --only ap-500-1s ;;
    'data-diffusion 37') farm --only ap-500-0.1s ;;
    'data-diffusion 38') farm --only ap-blue-gene-p ;;
    'data-diffusion 39') farm --only ap-sicortex ;;
    'data-diffusion 46' | 'data-diffusion 47') make demo ;;
    'data-diffusion 50' | 'data-diffusion 51') cargo bench --locked -p eyas-dev --bench model ;;
    'elastic-blocks '[4-7]) experiment elastic_hadoop.py --only high --alphas 0 0.5 1 ;;
    'elastic-blocks '1[0-3]) experiment elastic_hadoop.py ;;
    'elastic-blocks 14')
        experiment elastic_hadoop.py --only idle --alphas 0.4 0.7 --programs wordcount grep
        ;;
    'io-coordination 5') experiment io_striped.py ;;
    'io-coordination 7') experiment io_order.py --experiment 1 ;;
    'io-coordination 9' | 'io-coordination 10') experiment io_order.py --experiment 2 ;;
    'io-coordination 11') experiment io_order.py --experiment 3 ;;
    'replica-coupled '[4-6]) experiment blast.py ;;
    'replica-coupled '[78]) experiment overlap.sh ;;
    *)
        echo "no measurement stands beside figure $figure of $paper: see docs/reference/figures.md" >&2
        exit 2
        ;;
esac
