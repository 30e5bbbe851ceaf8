// What calls the kernels by their names, as compiler.py fills it in.
#include <emulated.h>
{includes}
#include <map>
#include <string>
#include <torchneuron/register.h>
void emulated_kernels(std::map<std::string, emulated::Function>& kernels) {{
{kernels}
}}
