#!/bin/sh
# Links the native part of the Java package, with the C library in it:
#     doors/java/native.sh ARCHIVE LIBRARY
# ARCHIVE is libeyas_capi.a. The headers of Java are those of $JAVA_HOME, or of the `javac` in PATH.
set -eu
archive=$1
library=$2
here=$(dirname "$0")
java=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}
mkdir -p "$(dirname "$library")"
# Java unloads a library with its class loader, but threads of the C library may still run: `nodelete`.
${CC:-cc} -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -pedantic -o "$library" \
    -I"$here/../capi/include" -I"$java/include" -I"$java/include/linux" "$here"/eyas/src/main/native/*.c \
    -Wl,--version-script,"$here/native.map" "$archive" \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now -Wl,-z,nodelete -Wl,--strip-all -lgcc_s -lpthread -lm -ldl
