#!/bin/sh
# Writes secrets.env and database.env beside this file: keys and a password, made here and shown nowhere.
set -eu
cd "$(dirname "$0")"
umask 077

for file in secrets.env database.env; do
    if [ -e "$file" ]; then
        echo "$file is there already: nothing is changed" >&2
        exit 1
    fi
done

password=$(openssl rand -hex 24)
database="airflow:$password@airflow-database/airflow"

cat >database.env <<END
POSTGRES_USER=airflow
POSTGRES_DB=airflow
POSTGRES_PASSWORD=$password
END

# The Fernet key encrypts connections and variables in Airflow's database; the secret key signs what its parts ask of
# one another (the log of a running task); the JWT secret signs the tokens of users and of tasks.
cat >secrets.env <<END
AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=postgresql+psycopg://$database
AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC=postgresql+psycopg_async://$database
AIRFLOW__CORE__FERNET_KEY=$(openssl rand -base64 32 | tr '+/' '-_')
AIRFLOW__API__SECRET_KEY=$(openssl rand -hex 32)
AIRFLOW__API_AUTH__JWT_SECRET=$(openssl rand -hex 64)
END
echo "secrets.env and database.env are written; keep them, and out of version control"
