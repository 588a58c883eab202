#!/usr/bin/env bash
# Runs the real Apache RocketMQ on loopback, the official Java clients and the official admin tool.
# Clients and tools work against any cluster: the real one, or `rocketpy standalone`.
#
#   peer.sh fetch                              download the jars (Maven Central), compile src/*.java
#   peer.sh start DIR [key=value ...]          name server :9876 and broker :10911 with DIR as their home; ready on return
#   peer.sh stop DIR                           stop what `start DIR` started
#   peer.sh load NAMESRV TOPIC send|drain|e2e ...   see src/Load.java
#   peer.sh driver [JAVA OPTION ...]           loads from standard input, one a line, all in one JVM; see src/Driver.java
#   peer.sh admin NAMESRV COMMAND [args ...]   the official mqadmin, one command
#   peer.sh admins NAMESRV                     the official mqadmin, many commands from standard input; see src/Admin.java
#   peer.sh actor NAMESRV                      producers and consumers driven from standard input; see src/Actor.java
#   peer.sh java CLASS [args ...]              any class on the class path (5.4.0), as FeatureLoad: transactions, delays, filters, order, pop
#   peer.sh client498 CLASS [args ...]         the same with the 4.9.8 client on the class path (Load, Actor)
#
# PEER_CACHE (default ~/.cache/rocketpy-peer) keeps jars and classes. PEER_HEAP (default 2g) is the broker's heap.
# PEER_NS_PORT and PEER_PORT move the two ports. More key=value pairs go into broker.conf.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PEER_CACHE:-$HOME/.cache/rocketpy-peer}
ns_port=${PEER_NS_PORT:-9876}
port=${PEER_PORT:-10911}
# Classes live under a name made of their sources, so that an edited source is compiled again and never mixed with the old one.
stamp=$(cat "$here"/*.xml "$here"/src/*.java | cksum | cut -d' ' -f1)
classes=$cache/classes-$stamp
classes498=$cache/classes498-$stamp
class_path="$classes:$cache/lib/*"
# Tools and clients write their logs under user.home; keep them out of the user's own.
quiet=(-Duser.home="$cache/home" -Drocketmq.client.logUseSlf4j=false)

fetch() {
    [ -e "$classes/.ready" ] && [ -e "$classes498/.ready" ] && return
    mkdir -p "$cache/lib" "$cache/lib498" "$cache/home" "$classes" "$classes498"
    exec 8> "$cache/fetch.lock"
    flock 8
    if [ ! -e "$cache/lib/.fetched" ]; then
        mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/lib" -DincludeScope=runtime >&2
        touch "$cache/lib/.fetched"
    fi
    if [ ! -e "$cache/lib498/.fetched" ]; then
        mvn -q -B -f "$here/client498.xml" dependency:copy-dependencies -DoutputDirectory="$cache/lib498" -DincludeScope=runtime >&2
        touch "$cache/lib498/.fetched"
    fi
    if [ ! -e "$classes/.ready" ]; then
        javac -nowarn -Xlint:none -cp "$cache/lib/*" -d "$classes" "$here"/src/*.java
        touch "$classes/.ready"
    fi
    if [ ! -e "$classes498/.ready" ]; then
        javac -nowarn -Xlint:none -cp "$cache/lib498/*" -d "$classes498" "$here"/src/{Lines,Load,Actor}.java
        touch "$classes498/.ready"
    fi
    exec 8>&-
}

wait_port() { # port, pid
    for _ in $(seq 1200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        kill -0 "$2" 2>/dev/null || { echo "process for port $1 ended, see its log" >&2; exit 1; }
        sleep 0.1
    done
    echo "no answer on port $1" >&2
    exit 1
}

start() {
    local dir=$1; shift
    mkdir -p "$dir/conf" "$dir/logs"
    dir=$(cd "$dir" && pwd)
    export ROCKETMQ_HOME=$dir
    {
        echo "brokerClusterName=DefaultCluster"
        echo "brokerName=apache-a"
        echo "brokerId=0"
        echo "brokerIP1=127.0.0.1"
        echo "listenPort=$port"
        echo "namesrvAddr=127.0.0.1:$ns_port"
        echo "storePathRootDir=$dir/store"
        echo "storePathCommitLog=$dir/store/commitlog"
        echo "autoCreateTopicEnable=true"
        echo "enablePropertyFilter=true"
        printf '%s\n' "$@"
    } > "$dir/conf/broker.conf"
    echo "listenPort=$ns_port" > "$dir/conf/namesrv.conf"
    java -Xms256m -Xmx256m -Duser.home="$dir" -cp "$class_path" \
        org.apache.rocketmq.namesrv.NamesrvStartup -c "$dir/conf/namesrv.conf" > "$dir/namesrv.out" 2>&1 9>&- &
    echo $! > "$dir/namesrv.pid"
    wait_port "$ns_port" "$(cat "$dir/namesrv.pid")"
    java -Xms"${PEER_HEAP:-2g}" -Xmx"${PEER_HEAP:-2g}" -Duser.home="$dir" -Drocketmq.client.logUseSlf4j=false \
        -XX:-UseBiasedLocking -XX:+IgnoreUnrecognizedVMOptions \
        --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \
        --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED \
        -cp "$class_path" org.apache.rocketmq.broker.BrokerStartup -c "$dir/conf/broker.conf" > "$dir/broker.out" 2>&1 9>&- &
    echo $! > "$dir/broker.pid"
    wait_port "$port" "$(cat "$dir/broker.pid")"
    for _ in $(seq 600); do
        grep -q "boot success" "$dir/broker.out" && return
        sleep 0.1
    done
    echo "the broker did not report its start, see $dir/broker.out" >&2
    exit 1
}

is_running() { # pid; who has ended and is not waited for yet is not
    [ -e "/proc/$1/stat" ] && ! grep -q ') Z' "/proc/$1/stat" 2>/dev/null
}

stop() {
    for name in broker namesrv; do
        [ -e "$1/$name.pid" ] || continue
        pid=$(cat "$1/$name.pid")
        kill "$pid" 2>/dev/null || true
        # Who opens the store next must not meet it still open.
        for _ in $(seq 1200); do is_running "$pid" || break; sleep 0.1; done
        rm -f "$1/$name.pid"
        is_running "$pid" || continue
        kill -9 "$pid"
        echo "the $name did not end in two minutes, it was killed" >&2
        exit 1
    done
}

verb=${1:-}
shift || { sed -n '2,17p' "$0"; exit 2; }
fetch
case $verb in
    fetch) ;;
    start) start "$@" ;;
    stop) stop "$@" ;;
    load) exec java -Xmx1g -Drocketmq.client.logUseSlf4j=false -cp "$class_path" Load "$@" 2>/dev/null ;;
    driver) exec java -Xmx1g "${quiet[@]}" "$@" -cp "$class_path" Driver 2>/dev/null ;;
    admin) namesrv=$1; shift; exec java -Xmx256m "${quiet[@]}" -cp "$class_path" org.apache.rocketmq.tools.command.MQAdminStartup "$@" -n "$namesrv" ;;
    # Some commands leave files in the working directory.
    admins) cd "$cache/home"; exec java -Xmx256m "${quiet[@]}" -Djava.security.manager=allow -cp "$class_path" Admin "$@" ;;
    actor) exec java -Xmx256m "${quiet[@]}" -cp "$class_path" Actor "$@" ;;
    java) exec java -Xmx1g "${quiet[@]}" -cp "$class_path" "$@" ;;
    client498) exec java -Xmx1g "${quiet[@]}" --add-opens=java.base/java.lang=ALL-UNNAMED -cp "$classes498:$cache/lib498/*" "$@" ;;
    *) sed -n '2,17p' "$0"; exit 2 ;;
esac
