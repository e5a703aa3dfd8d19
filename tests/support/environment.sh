#!/bin/sh
# Builds what the Makefile's targets need, one of: python package bench java postgresql mariadb others browser lineage
set -eu

REQUIREMENTS=requirements.txt
BENCH_REQUIREMENTS=tests/benchmarks/requirements.txt
VENV=.venv

say() { printf '%s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

is_root() { [ "$(id -u)" -eq 0 ]; }

can_install() { is_root && command -v apt-get >/dev/null; }

apt_install() {
    log=$(mktemp)
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } \
        >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "apt-get install $* failed"
    fi
    rm -f "$log"
}

supported_python() {
    command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null
}

find_python() {
    for candidate in python3.11 python3 python3.12 python3.13; do
        if supported_python "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11, 3.12 or 3.13 is needed. On Debian 12, as root: apt-get install python3 python3-venv"
}

ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    package="$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    can_install || fail "$1 cannot create virtual environments. As root: apt-get install $package"
    say "Installing Debian's $package (about 20 s)"
    apt_install "$package"
}

build_python() {
    python=$(find_python)
    ensure_venv_module "$python"
    say "Creating $VENV with $("$python" --version) (about 5 s)"
    "$python" -m venv "$VENV"
    say "Installing the pinned packages of $REQUIREMENTS (1 to 5 minutes, 1.3 GB on disk)"
    # --no-deps: the list is complete, and the Spark provider asks for a package whose files overwrite pyspark's.
    "$VENV/bin/pip" install -qq --disable-pip-version-check --no-deps --requirement "$REQUIREMENTS"
}

install_package() {
    say "Installing tranrepl itself, editable (about 5 s)"
    "$VENV/bin/pip" install -qq --disable-pip-version-check --no-deps --editable .
}

install_bench() {
    say "Installing what draws the benchmarks' chart (about 10 s)"
    "$VENV/bin/pip" install -qq --disable-pip-version-check --no-deps --requirement "$BENCH_REQUIREMENTS"
}

# Apart from the other packages: a provider that is installed is loaded by each process of Airflow's.
install_lineage() {
    [ ! -d "$VENV/openlineage" ] || [ tests/airflow/lineage_requirements.txt -nt "$VENV/openlineage" ] || return 0
    say "Installing OpenLineage's provider for the tests (about 5 s)"
    rm -rf "$VENV/openlineage"
    if "$VENV/bin/pip" install -qq --disable-pip-version-check --no-deps --target "$VENV/openlineage" \
        --requirement tests/airflow/lineage_requirements.txt; then
        touch "$VENV/openlineage"
    else
        rm -rf "$VENV/openlineage"
        say "OpenLineage's provider cannot be had, its part of the scheduler's test is left out"
    fi
}

java_version() {
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

has_java() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null || return 1
    version=$(java_version "$java")
    [ "${version:-0}" -ge 17 ]
}

ensure_java() {
    install_java
    # Where it cannot be made, Spark starts more slowly, and no less well.
    ls "$VENV"/var/cache/tranrepl/*.jsa >/dev/null 2>&1 || say "Letting Spark start in half the time (20 s, once)"
    "$VENV/bin/tranrepl" class-archive >/dev/null || true
}

install_java() {
    has_java && return
    wanted="Java 17 or later is needed: set JAVA_HOME, or on Debian, as root: apt-get install openjdk-17-jre-headless"
    can_install || fail "$wanted"
    [ -z "${JAVA_HOME:-}" ] || fail "JAVA_HOME=$JAVA_HOME has no Java 17. $wanted"
    say "Installing Debian's openjdk-17-jre-headless (about 1 minute)"
    apt_install openjdk-17-jre-headless
    has_java || fail "the java on PATH is older than 17. $wanted"
}

ensure_postgresql() {
    [ ! -x /usr/lib/postgresql/15/bin/postgres ] || [ ! -x /usr/sbin/pgbouncer ] || return 0
    if ! can_install; then
        say "Debian's postgresql-15 and pgbouncer are not both there, tests are skipped."
        say "As root: apt-get install postgresql-15 pgbouncer"
        return 0
    fi
    say "Installing Debian's postgresql-15 and pgbouncer for the tests (about 30 s); no cluster is created"
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    apt_install postgresql-15 pgbouncer
}

ensure_mariadb() {
    PATH="$PATH:/usr/sbin"
    ! command -v mariadbd >/dev/null || return 0
    if ! can_install; then
        say "Debian's mariadb-server-core is missing, its tests are skipped. As root: apt-get install mariadb-server-core"
        return 0
    fi
    say "Installing Debian's mariadb-server-core for the tests (about 20 s); no server is started"
    apt_install mariadb-server-core mariadb-client-core
}

# Servers that other releases of Debian have are unpacked, and started by their own loader: nothing is installed, and the
# machine's own lists of packages stay as they are.
OTHERS="$VENV/servers"

ensure_others() {
    ensure_other mysql-9.7 "Ver 9" sid mysql-server-core mysqld
    ensure_other mariadb-11.8 "Ver 11.8" trixie mariadb-server-core mariadbd
    ensure_azurite
}

ensure_other() {
    [ ! -e "$OTHERS/$1/ready" ] || return 0
    say "Unpacking $1 of Debian's $3 for the tests (about 10 s); nothing is installed"
    mkdir -p "$OTHERS/$1"
    if ! sh "$0" unpack "$@" >"$OTHERS/$1/log" 2>&1; then
        say "$1 cannot be had, its tests are skipped: $(tail -n 1 "$OTHERS/$1/log")"
    fi
}

# Azure's server for tests, of npm's packages. What reports on its use, and the databases that it may use, are left out:
# that is three quarters of it.
ensure_azurite() {
    home="$OTHERS/azurite"
    [ ! -e "$home/ready" ] || return 0
    say "Installing Azure's server azurite of npm for the tests (about 20 s)"
    mkdir -p "$home/none"
    echo '{"name": "none", "version": "1.0.0"}' >"$home/none/package.json"
    echo 'module.exports = {}' >"$home/none/index.js"
    cat >"$home/package.json" <<EOF
{"private": true, "dependencies": {"azurite": "3.37.0"},
"overrides": {"applicationinsights": "file:none", "tedious": "file:none", "mysql2": "file:none"}}
EOF
    if ! npm install --prefix "$home" --ignore-scripts --no-audit --no-fund >"$home/log" 2>&1; then
        say "azurite cannot be had, its tests are skipped: $(tail -n 1 "$home/log")"
        return 0
    fi
    touch "$home/ready"
}

# usage: unpack NAME VERSION RELEASE PACKAGE PROGRAM
unpack() {
    command -v apt-get >/dev/null || fail "there is no apt-get"
    home=$(cd "$OTHERS/$1" && pwd)
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
    keys=$(find /usr/share/keyrings -name 'debian-archive-keyring.*' | sort | head -n 1)
    [ -n "$site" ] && [ -n "$keys" ] || fail "apt has no archive of Debian's"
    mkdir -p "$home/lists/partial" "$home/cache/archives/partial" "$home/etc/preferences.d"
    cp -r /etc/apt/apt.conf.d "$home/etc/"
    : >"$home/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$site" "$3" >"$home/etc/sources.list"
    cat >"$home/apt.conf" <<EOF
Dir::Etc "$home/etc"; Dir::State "$home"; Dir::State::lists "$home/lists"; Dir::State::status "$home/status";
Dir::Cache "$home/cache"; APT::Install-Recommends "false"; APT::Sandbox::User "$(id -un)";
EOF
    APT_CONFIG="$home/apt.conf" apt-get update -o APT::Update::Error-Mode=any
    APT_CONFIG="$home/apt.conf" apt-get install -y --download-only "$4"
    for package in "$home"/cache/archives/*.deb; do
        case "${package##*/}" in perl* | libperl* | libdb5* | libgdbm*) ;; *) dpkg-deb -x "$package" "$home/tree" ;; esac
    done
    rm -rf "$home/lists" "$home/cache"
    run="$home/tree/usr/lib64/ld-linux-x86-64.so.2 --library-path $home/tree/usr/lib/x86_64-linux-gnu"
    $run "$home/tree/usr/sbin/$5" --no-defaults --version | grep "$2" || fail "Debian's $3 has another version"
    touch "$home/ready"
}

ensure_browser() {
    ! command -v chromium >/dev/null || return 0
    if ! can_install; then
        say "Debian's chromium is missing, the tests of pages are skipped. As root: apt-get install chromium"
        return 0
    fi
    say "Installing Debian's chromium for the tests of pages (about 1 minute)"
    apt_install chromium
}

case "${1:-}" in
python) build_python ;;
package) install_package ;;
bench) install_bench ;;
java) ensure_java ;;
postgresql) ensure_postgresql ;;
mariadb) ensure_mariadb ;;
others) ensure_others ;;
unpack) shift && unpack "$@" ;;
browser) ensure_browser ;;
lineage) install_lineage ;;
*) fail "usage: environment.sh python | package | bench | java | postgresql | mariadb | others | browser | lineage" ;;
esac
