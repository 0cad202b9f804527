#!/usr/bin/env bash
# Kubernetes without a cluster: manifests that `orrery submit` prints are validated, and their pods run as a kubelet
# runs them. Needs root, and a Python with kubeflow-trainer-api, kubernetes-validate and PyYAML.
source "$(dirname "$0")/../jobs/lib.sh"
python=${ORRERY_KUBERNETES_PYTHON:-$(dirname "$orrery")/kubernetes_python/bin/python3}
"$python" -c "import yaml, kubernetes_validate, kubeflow_trainer_api" 2> /dev/null || {
    echo "skipped: no kubeflow-trainer-api, kubernetes-validate and pyyaml:" \
        "python3 -m venv build/kubernetes_python &&" \
        "build/kubernetes_python/bin/pip install kubeflow-trainer-api kubernetes-validate pyyaml"
    exit 77
}
unshare --mount --pid --fork --uts --net true 2> /dev/null || { echo "skipped: no namespaces"; exit 77; }
ip netns list > /dev/null 2>&1 || { echo "skipped: no network namespaces"; exit 77; }
if command -v podman > /dev/null && command -v runc > /dev/null && command -v mmdebstrap > /dev/null; then
    libraries=$(ldd "$orrery" "$(dirname "$orrery")"/plugins/*.so | awk '/=> \// { print $3 }' | sort -u)
    packages=$(sed 'p; s#^/lib/#/usr/lib/#' <<< "$libraries" | xargs dpkg -S 2> /dev/null | cut -d: -f1 | sort -u |
        paste -sd,)
    export ORRERY_PODS_BASE=$(dirname "$orrery")/tests/engines/pods-$(cksum <<< "$packages" | cut -d' ' -f1).tar
    [ -s "$ORRERY_PODS_BASE" ] || { # a base system with the libraries that the build wants
        mmdebstrap --mode=root --variant=minbase --include="$packages" bookworm "$ORRERY_PODS_BASE.new.tar" \
            $(find /etc/apt -name '*.list' -o -name '*.sources') > base.log 2>&1 ||
            { cat base.log; fail "no base system for pods"; }
        mv "$ORRERY_PODS_BASE.new.tar" "$ORRERY_PODS_BASE"
    }
fi
mkdir claim
mv text.txt claim/
chmod 755 "$work"
PYTHONPATH=$source_root/tests/engines "$python" -B "$source_root/tests/engines/kubernetes.py" "$orrery" "$source_root" \
    "$work" "$@" || exit 1
echo "kubernetes: ok"
