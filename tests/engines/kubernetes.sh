#!/usr/bin/env bash
# Kubernetes without a cluster: manifests that `orrery submit` prints are validated, and pods started as a kubelet starts
# them. Needs root, and a Python with kubeflow-trainer-api, kubernetes-validate and PyYAML.
source "$(dirname "$0")/../jobs/lib.sh"
python=${ORRERY_KUBERNETES_PYTHON:-$(dirname "$orrery")/kubernetes_python/bin/python3}
"$python" -c "import yaml, kubernetes_validate, kubeflow_trainer_api" 2> /dev/null || {
    echo "skipped: no kubeflow-trainer-api, kubernetes-validate and pyyaml: python3 -m venv build/kubernetes_python &&" \
        "build/kubernetes_python/bin/pip install kubeflow-trainer-api kubernetes-validate pyyaml"
    exit 77
}
unshare --mount --pid --fork --uts --net true 2> /dev/null || { echo "skipped: no namespaces"; exit 77; }
ip netns list > /dev/null 2>&1 || { echo "skipped: no network namespaces"; exit 77; }
mkdir claim
mv text.txt claim/
chmod 755 "$work"
PYTHONPATH=$source_root/tests/engines "$python" -B "$source_root/tests/engines/kubernetes.py" "$orrery" "$source_root" \
    "$work" "$@" || exit 1
echo "kubernetes: ok"
