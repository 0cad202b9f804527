#include "cli/tokenize/tokenize_flags.h"

namespace orrery {

void add_tokenize_flags(CLI::App& tokens, TokenizeCommand& command) {
    tokens.add_option("files", command.files, "texts, - for standard input; without -o a text and a token file")
        ->required();
    tokens.add_option("-o", command.out, "write NAME.bin and NAME.idx, Megatron's pair")->type_name("NAME");
    tokens.add_option("--tokenizer", command.tokenizer, "folder with a tokenizer.json; without one a byte is a token")
        ->type_name("FOLDER");
    tokens.add_option("--field", command.field, "files are lines of JSON, whose texts have this key")->type_name("KEY");
    tokens.add_option("--prompt", command.prompt, "lines of JSON: key of what is given")->type_name("KEY");
    tokens.add_option("--completion", command.completion, "and of what is learned")->type_name("KEY");
    tokens.add_option("--end", command.end, "token between documents, instead of the folder's")->type_name("TOKEN");
    tokens.add_option("--threads", command.threads, "0: all processors")->check(CLI::Range(0, 1024));
    tokens.add_option("--token-bytes", command.token_bytes, "2 or 4, without -o")->check(CLI::IsMember({2, 4}));
}

}  // namespace orrery
