// tidemark estimate: what the model states of a ZeRO run should take.
#include "daemon/detect/estimate.h"

#include <memory>

#include "client/commands/commands.h"

namespace tidemark::client {

void AddEstimate(CommandLine& line) {
  auto options = std::make_shared<detect::EstimateOptions>();
  CLI::App* command =
      line.Add("estimate", "What ZeRO's model states should take, per GPU and per node's CPU",
               [options](Context& context) {
                 return detect::RunEstimate(*options, context.out, context.err) == 0 ? kOk : kUsage;
               });
  command->add_option("--stage", options->stage, "ZeRO stage: 1, 2 or 3")->check(CLI::Range(1, 3));
  CLI::Option* model = command->add_option("--model", options->model_dir,
                                           "Read the sizes from *.safetensors in this directory");
  command->add_option("--params", options->params, "Parameters, such as 6897M")->excludes(model);
  command->add_option("--largest-layer", options->largest_layer, "Parameters of the largest layer")
      ->excludes(model);
  command->add_option("--nodes", options->nodes, "Nodes")->check(CLI::PositiveNumber);
  command->add_option("--gpus-per-node", options->gpus_per_node, "GPUs per node")
      ->check(CLI::PositiveNumber);
  command->add_option("--buffer-factor", options->buffer_factor, "Factor for additional buffers");
  command->add_flag("--json", options->json, "Print JSON");
}

}  // namespace tidemark::client
