#include "manifest.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <variant>

#include "yaml.h"

namespace orrery::kubernetes {
namespace {

namespace fs = std::filesystem;

/// Seconds from SIGTERM to SIGKILL where the run does not state how long it needs. A pod that has saved ends earlier.
constexpr int64_t usual_grace_s = 300;
/// Kubernetes counts the end of each pod, and all pods of a job end together: this many ends for each pod.
constexpr int64_t failures_of_pod = 6;

int64_t pods_of(const EngineJob& job) { return job.nodes + job.spares; }

bool is_quantity(const std::string& text) {
    static constexpr std::string_view suffixes[] = {"",  "m",  "k",  "M",  "G",  "T",  "P",
                                                    "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number = text.substr(0, digits);
    if (number.empty() || number.front() == '.' || number.back() == '.' || std::ranges::count(number, '.') > 1)
        return false;
    return std::ranges::count(suffixes, std::string_view(text).substr(digits)) > 0;
}

std::string quantity(Config& table, const std::string& key) {
    const ConfigValue* value = table.find(key);
    if (value && std::holds_alternative<int64_t>(value->data)) return std::to_string(table.integer(key, 0));
    const std::string text = table.text(key, "");
    if (text.empty() || is_quantity(text)) return text;
    throw Error(table.where(key), table.path() + "." + key + " is \"" + text +
                                      "\", expected a quantity of Kubernetes\n  for example \"500m\", \"8\", \"16Gi\"");
}

/// Keys of the pod's spec that the manifest has from other settings.
void refuse_repeated(Config& config, const std::vector<std::string>& extra) {
    static const Pairs known = {{"restartPolicy", ""},
                                {"terminationGracePeriodSeconds", "run.grace_s"},
                                {"automountServiceAccountToken", ""},
                                {"enableServiceLinks", ""},
                                {"securityContext", "submit.kubernetes.uid"},
                                {"nodeSelector", "submit.kubernetes.node_selector"},
                                {"containers", "submit.kubernetes.image and resources"},
                                {"volumes", "submit.kubernetes.claim and mount"}};
    for (const std::string& line : extra)
        for (const auto& [key, setting] : known)
            if (line.starts_with(key + ":"))
                throw Error(config.where("extra"), "submit.kubernetes.extra: the manifest has its own " + key +
                                                       (setting.empty() ? "\n  leave it out" : "\n  set " + setting));
}

[[noreturn]] void refuse(const Settings& settings, const std::string& text) { throw Error(settings.origin, text); }

bool is_below(const std::string& path, const std::string& folder) {
    const fs::path relative = fs::path(path).lexically_normal().lexically_relative(fs::path(folder).lexically_normal());
    return !relative.empty() && *relative.begin() != "..";
}

/// Where the command starts in the pod.
std::string work_of(const Settings& settings, const EngineJob& job) {
    if (!settings.work.empty()) return settings.work;
    if (is_below(job.work, settings.mount)) return job.work;
    refuse(settings, "orrery submit was started in " + job.work + ", which pods do not have: the claim \"" +
                         settings.claim + "\" is mounted at " + settings.mount +
                         "\n  set submit.kubernetes.work to the folder in the pod where the command starts");
}

/// The run's folder as pods see it: below `work` where it is below the folder of `orrery submit`.
std::string folder_of(const EngineJob& job, const std::string& work) {
    if (!is_below(job.folder, job.work)) return job.folder;
    return fs::path(work) / fs::path(job.folder).lexically_relative(job.work);
}

void require(const Settings& settings, const EngineJob& job) {
    const auto named = [&](const std::string& value, const std::string& key, const std::string& what) {
        if (value.empty()) refuse(settings, "submit.kubernetes." + key + " is not set\n  name " + what);
    };
    named(settings.image, "image", "the image of the pods, in which orrery is in PATH");
    named(settings.claim, "claim",
          "the PersistentVolumeClaim for scripts, data and the run's folder, which all pods can mount "
          "(ReadWriteMany, where they run on several nodes)");
    named(settings.mount, "mount", "the folder at which pods mount the claim, for example /data");
    if (!settings.mount.starts_with('/'))
        refuse(settings, "submit.kubernetes.mount is \"" + settings.mount + "\", expected an absolute path");
    if (settings.secret.empty() && pods_of(job) > 1)
        refuse(settings,
               "submit.kubernetes.secret is not set, and pods meet over a network that others may reach\n  make one: "
               "kubectl create secret generic orrery --from-literal=token=\"$(openssl rand -hex 32)\"" +
                   (settings.name_space.empty() ? "" : " --namespace=" + settings.name_space) +
                   "\n  and name it: submit.kubernetes.secret = \"orrery\"");
    const std::string folder = folder_of(job, work_of(settings, job));
    if (!is_below(folder, settings.mount))
        refuse(settings, "run.folder is " + folder + " in the pods, which is not on the claim \"" + settings.claim +
                             "\" at " + settings.mount +
                             ": its checkpoints would be lost with the pod\n  set run.folder "
                             "to a folder below " +
                             settings.mount);
}

std::string labels(const EngineJob& job) {
    return "app.kubernetes.io/name: orrery\napp.kubernetes.io/instance: " + scalar(object_name(job), "run") + "\n";
}

std::string metadata(const Settings& settings, const EngineJob& job) {
    std::string text = "metadata:\n  name: " + scalar(object_name(job), "run") + "\n";
    if (!settings.name_space.empty())
        text += "  namespace: " + scalar(settings.name_space, "submit.kubernetes.namespace") + "\n";
    return text + "  labels:\n" + indented(labels(job), 4) +
           "  annotations:\n    orrery/folder: " + scalar(folder_of(job, work_of(settings, job)), "run.folder") + "\n";
}

std::string variable(const std::string& name, const std::string& value) {
    return "- name: " + scalar(name, "submit.environment") +
           "\n  value: " + unexpanded(value, "submit.environment." + name) + "\n";
}

std::string environment(const Settings& settings, const EngineJob& job) {
    const std::string name = object_name(job);
    std::string text = "env:\n" + variable("ORRERY_NODES", std::to_string(pods_of(job)));
    // The pod of node 0, by the headless service that a JobSet has.
    text += variable("MASTER_ADDR", name + "-node-0-0." + name);
    text += variable("ORRERY_KUBERNETES", settings.kind + "/" + name);
    for (const auto& [variable, field] :
         {std::pair("ORRERY_KUBERNETES_NAMESPACE", "metadata.namespace"),
          std::pair("ORRERY_KUBERNETES_JOB", "metadata.labels['batch.kubernetes.io/controller-uid']")})
        text += std::string("- name: ") + variable + "\n  valueFrom:\n    fieldRef:\n      fieldPath: " + field + "\n";
    if (!settings.secret.empty()) text += variable("ORRERY_TOKEN_FILE", "/etc/orrery/token");
    for (const auto& [key, value] : job.environment) text += variable(key, value);
    return text;
}

/// Limits of a pod. Kubernetes requests as much for it.
std::string limits(const Settings& settings, const EngineJob& job) {
    Pairs all = settings.resources;
    const auto add = [&](const std::string& key, int64_t count) {
        const bool given = std::ranges::any_of(all, [&](const auto& one) { return one.first == key; });
        if (count > 0 && !given) all.emplace_back(key, std::to_string(count));
    };
    add("cpu", job.threads * job.ranks_per_node);
    add("nvidia.com/gpu", job.gpus_per_node);
    if (all.empty()) return "";
    std::string text = "resources:\n  limits:\n";
    for (const auto& [key, value] : all)
        text += "    " + scalar(key, "submit.kubernetes.resources") + ": " + scalar(value, key) + "\n";
    return text;
}

/// The command as it is, or after lines of shell; the shell becomes the command, which is process 1 of the pod.
std::string command(const EngineJob& job) {
    std::vector<std::string> all = job.command;
    all.at(0) = fs::path(all.at(0)).filename();  // in the image it has another folder
    if (!job.before.empty()) {
        std::string script;
        for (const std::string& line : job.before) script += line + "\n";
        const std::vector<std::string> shell = {"/bin/sh", "-ec", script + "exec \"$@\"", "sh"};
        all.insert(all.begin(), shell.begin(), shell.end());
    }
    std::string text = "command:\n";
    for (const std::string& word : all) text += "- " + unexpanded(word, "the command") + "\n";
    return text;
}

std::string container(const Settings& settings, const EngineJob& job) {
    std::string text = "- name: node\n";
    std::string rest = "image: " + scalar(settings.image, "submit.kubernetes.image") + "\n";
    rest += "workingDir: " + scalar(work_of(settings, job), "submit.kubernetes.work") + "\n";
    rest += command(job) + environment(settings, job) + limits(settings, job);
    rest +=
        "securityContext:\n"
        "  allowPrivilegeEscalation: false\n"
        "  readOnlyRootFilesystem: true\n"
        "  capabilities:\n"
        "    drop: [ALL]\n"
        "volumeMounts:\n"
        "- name: work\n"
        "  mountPath: " +
        scalar(settings.mount, "submit.kubernetes.mount") +
        "\n"
        "- name: shm\n"
        "  mountPath: /dev/shm\n"
        "- name: tmp\n"
        "  mountPath: /tmp\n";
    if (!settings.secret.empty()) rest += "- name: token\n  mountPath: /etc/orrery\n  readOnly: true\n";
    return text + indented(rest, 2);
}

std::string volumes(const Settings& settings) {
    std::string text =
        "volumes:\n"
        "- name: work\n"
        "  persistentVolumeClaim:\n"
        "    claimName: " +
        scalar(settings.claim, "submit.kubernetes.claim") +
        "\n"
        "- name: shm\n"
        "  emptyDir:\n"
        "    medium: Memory\n";
    if (!settings.shared_memory.empty()) text += "    sizeLimit: " + scalar(settings.shared_memory, "") + "\n";
    text += "- name: tmp\n  emptyDir: {}\n";
    if (settings.secret.empty()) return text;
    return text +
           "- name: token\n"
           "  secret:\n"
           "    secretName: " +
           scalar(settings.secret, "submit.kubernetes.secret") +
           "\n"
           "    defaultMode: 288  # r--r-----\n"
           "    items:\n"
           "    - key: token\n"
           "      path: token\n";
}

std::string pod(const Settings& settings, const EngineJob& job) {
    const auto grace_s = job.grace_s > 0 ? static_cast<int64_t>(std::ceil(job.grace_s)) : usual_grace_s;
    const std::string uid = std::to_string(settings.uid);
    std::string text =
        "restartPolicy: Never\n"
        "terminationGracePeriodSeconds: " +
        std::to_string(grace_s) +
        "\n"
        "automountServiceAccountToken: false\n"
        "enableServiceLinks: false\n"
        "securityContext:\n"
        "  runAsNonRoot: true\n"
        "  runAsUser: " +
        uid + "\n  runAsGroup: " + uid + "\n  fsGroup: " + uid +
        "\n"
        "  fsGroupChangePolicy: OnRootMismatch\n"
        "  seccompProfile:\n"
        "    type: RuntimeDefault\n";
    if (!settings.node_selector.empty()) text += "nodeSelector:\n";
    for (const auto& [key, value] : settings.node_selector)
        text += "  " + scalar(key, "submit.kubernetes.node_selector") + ": " + scalar(value, key) + "\n";
    for (const std::string& line : settings.extra) text += line + "\n";
    return text + "containers:\n" + container(settings, job) + volumes(settings);
}

std::string job_spec(const Settings& settings, const EngineJob& job) {
    const std::string pods = std::to_string(pods_of(job));
    std::string text = "completionMode: Indexed\ncompletions: " + pods + "\nparallelism: " + pods +
                       "\nbackoffLimit: " + std::to_string(failures_of_pod * pods_of(job)) + "\n";
    if (job.time_s > 0) text += "activeDeadlineSeconds: " + std::to_string(job.time_s) + "\n";
    text +=
        "podReplacementPolicy: Failed\n"
        "podFailurePolicy:\n"
        "  rules:\n"
        "  - action: FailJob  # an error of usage would occur again\n"
        "    onExitCodes:\n"
        "      operator: In\n"
        "      values: [2]\n"
        "  - action: Ignore  # saved and stopped on request\n"
        "    onExitCodes:\n"
        "      operator: In\n"
        "      values: [75]\n"
        "  - action: Ignore\n"
        "    onPodConditions:\n"
        "    - type: DisruptionTarget\n"
        "      status: \"True\"\n";
    return text + "template:\n  metadata:\n    labels:\n" + indented(labels(job), 6) + "  spec:\n" +
           indented(pod(settings, job), 4);
}

std::string jobset_spec(const Settings& settings, const EngineJob& job) {
    std::string text =
        "network:\n"
        "  enableDNSHostnames: true\n"
        "  publishNotReadyAddresses: true\n"
        "replicatedJobs:\n"
        "- name: node\n"
        "  replicas: 1\n"
        "  template:\n";
    if (settings.kind == "trainjob")
        text += "    metadata:\n      labels:\n        trainer.kubeflow.org/trainjob-ancestor-step: trainer\n";
    return text + "    spec:\n" + indented(job_spec(settings, job), 6);
}

}  // namespace

Settings::Settings(Config& config)
    : origin(config.origin()),
      name_space(config.text("namespace", "")),
      kind(config.text("kind", "jobset")),
      image(config.text("image", "")),
      claim(config.text("claim", "")),
      mount(config.text("mount", "")),
      work(config.text("work", "")),
      secret(config.text("secret", "")),
      shared_memory(quantity(config, "shared_memory")),
      uid(config.integer("uid", 1000)),
      extra(config.texts("extra")) {
    if (kind != "jobset" && kind != "trainjob")
        throw Error(config.where("kind"),
                    "submit.kubernetes.kind is \"" + kind + "\", expected \"jobset\" or \"trainjob\"");
    if (uid < 1)
        throw Error(config.where("uid"), "submit.kubernetes.uid is " + std::to_string(uid) +
                                             ", expected 1 or more: pods do not run as root");
    Config& limits = config.table("resources");
    for (const std::string& key : limits.keys()) resources.emplace_back(key, quantity(limits, key));
    Config& selector = config.table("node_selector");
    for (const std::string& key : selector.keys()) node_selector.emplace_back(key, selector.text(key, ""));
    refuse_repeated(config, extra);
}

std::string object_name(const EngineJob& job) {
    std::string name;
    for (const char c : job.name) {
        const bool upper = c >= 'A' && c <= 'Z';
        name += upper ? static_cast<char>(c | 0x20) : c == '_' || c == '.' ? '-' : c;
    }
    if (name.empty() || name.front() < 'a' || name.front() > 'z') name = "run-" + name;
    while (name.ends_with('-')) name.pop_back();
    // Kubernetes appends five characters of its own to "NAME-node-0-INDEX-".
    const std::string longest = name + "-node-0-" + std::to_string(pods_of(job) - 1) + "-xxxxx";
    if (longest.size() > 63)
        throw Error("the run's name \"" + job.name + "\" is too long for Kubernetes: its pods would be named " +
                    longest + ", " + std::to_string(longest.size()) +
                    " characters of at most 63\n  name the last folder of run.folder " +
                    std::to_string(longest.size() - 63) + " characters shorter");
    return name;
}

std::string manifest(const Settings& settings, const EngineJob& job) {
    require(settings, job);
    const std::string name = scalar(object_name(job), "run"), pods = std::to_string(pods_of(job));
    if (settings.kind == "jobset")
        return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + metadata(settings, job) +
               "spec:\n  suspend: false\n" + indented(jobset_spec(settings, job), 2);
    const std::string version = "apiVersion: trainer.kubeflow.org/v1alpha1\n";
    return version + "kind: TrainingRuntime\n" + metadata(settings, job) + "spec:\n  mlPolicy:\n    numNodes: " + pods +
           "\n  template:\n    spec:\n" + indented(jobset_spec(settings, job), 6) + "---\n" + version +
           "kind: TrainJob\n" + metadata(settings, job) +
           "spec:\n  suspend: false\n  runtimeRef:\n    apiGroup: trainer.kubeflow.org\n    kind: TrainingRuntime\n"
           "    name: " +
           name + "\n  trainer:\n    numNodes: " + pods + "\n";
}

}  // namespace orrery::kubernetes
