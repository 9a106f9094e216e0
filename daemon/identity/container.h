// Which container and pod a process lives in, by its cgroup path and by what the kubelet leaves on
// the node. No API server is asked: a node answers for itself also when the cluster does not.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace tidemark {

// The container's id in a cgroup path of Docker, containerd, CRI-O or Podman; empty = none.
std::string ContainerIdOf(std::string_view cgroup_path);

struct PodName {
  std::string workload_namespace;
  std::string pod;
  std::string container;
};

// "POD_NAMESPACE_CONTAINER-ID.log", as the kubelet names its links in /var/log/containers: by
// container id. A name of another form is left out.
std::map<std::string, PodName> ReadPodNames(const std::filesystem::path& log_directory);

// What made the pod, from its name: "llama-worker-3" -> "llama", "llama-x7k2p" -> "llama".
std::string OwnerOfPod(std::string_view pod);

}  // namespace tidemark
