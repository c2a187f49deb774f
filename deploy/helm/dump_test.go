package helm
import ("testing";"os";"helm.sh/helm/v3/pkg/chartutil";"helm.sh/helm/v3/pkg/engine";"strings")
func TestDump(t *testing.T){
 for _, r := range rows { if r.set!="" {continue}
  dir, v := "quotient", ""
  if strings.HasPrefix(r.example,"beside-") {dir, v = "examples/"+r.example, parent} else { b,_:=os.ReadFile("examples/"+r.example+".yaml"); v=image+"\n"+string(b)}
  c:=load(t,dir)
  all,err:=chartutil.ToRenderValues(c, values(t,v), chartutil.ReleaseOptions{Name:"web",Namespace:"prod"}, chartutil.DefaultCapabilities); must(t,err)
  fs,err:=engine.Engine{Strict:true}.Render(c,all); must(t,err)
  for n,f:=range fs { if strings.TrimSpace(f)!="" {t.Logf("##### %s %s\n%s", r.example, n, f)}}
 }
}
